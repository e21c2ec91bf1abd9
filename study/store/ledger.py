"""The ledger: every fact about a trial is recorded here first.

One Optuna study per method label, in one journal: STUDY/ledger.log, or a file elsewhere.
One driver at a time writes it, under a lock; anyone may read it (`ledger_reader`).
"""

from __future__ import annotations

import math
import os
import socket
import uuid
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from study.schema.errors import LedgerError
from study.schema.objective import Objective
from study.store.journal import journal_path, open_journal
from study.store.ledger_facts import (
    VERSION,
    WITH_RETRIES,
    adoptions_in,
    check_mark,
    check_notes,
    check_trial,
    studies_in,
)
from study.store.ledger_reader import (
    DRIVER,
    OPTUNA_STATES,
    address_of,
    numbered,
    places_in,
    record_of,
    standing,
)
from study.store.same_ledger import check_same_ledger, ledger_is_missing
from study.store.study import StudyFolder, record_facts
from study.store.trials import Decision, TrialRecord, Trials
from trainables.outputs.outcome import Outcome
from trainables.plain import Value

LAST = ""  # the address of a driver that trains nothing
# How many attempts of a trial may die of each cause (other than the driver's death) before it is
# FAIL. A lost node is not the trial's fault; after an out-of-memory error it is retried once, on a
# whole GPU. After two deaths of a stack its trials train alone: who is to blame shows there. Nor is
# what the machine kills, unless the trial was `alone` on an idle node.
MAX_DEATHS = {
    "process": 3,
    "node": 20,
    "out_of_memory": 2,
    "stack": 2,
    "machine": math.inf,
    "alone": 3,
}


def open_storage(directory: Path, ledger: str | None) -> BaseStorage:
    """The Optuna storage of a study: its own journal, or one elsewhere; made if missing."""
    return open_to_write(directory, ledger, True)[0]


def open_to_write(
    directory: Path, ledger: str | None, create: bool
) -> tuple[BaseStorage, list[str]]:
    """`open_storage`, under the driver's lock; and what was repaired in it."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return open_journal(journal_path(directory, ledger), create, follow=ledger is not None)


class Ledger:
    """The trials of one study, by label and number.

    address: of the Ray cluster on which its driver trains; None is this machine, and a driver that
    trains nothing leaves the last one's.
    """

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        study_id: str,
        adoptions: int | None = None,
        address: str | None = LAST,
    ) -> None:
        self._storage = storage
        self._name = name
        self._study_id = study_id
        self._adopted = {} if adoptions is None else {"adoptions": adoptions}
        self._studies: dict[str, optuna.Study] = {}
        self._ids: dict[str, int] = {}
        self._entries: dict[str, list[int]] = {}  # by label and number, Optuna's id of the trial
        self._drivers: dict[str, object] = {}  # by label: the last driver there was
        self._me: dict[str, str | None] = {
            "who": f"pid {os.getpid()} on {socket.gethostname()}",
            "token": uuid.uuid4().hex,
        }
        if address != LAST:
            self._me["address"] = address

    def open(self, label: str, objectives: tuple[Objective, ...]) -> None:
        """Create or reopen the Optuna study of a label. Raises LedgerError if it belongs to another
        study.

        One without any trial is recreated: its objectives may be of an earlier spec.
        """
        name = f"{self._name}/{label}"
        # Optuna's `load_if_exists` writes to the journal on every load.
        if name in studies_in(self._storage):
            study = optuna.load_study(study_name=name, storage=self._storage)
            self._drivers[label] = study.user_attrs.get(DRIVER)
            check_mark(study.user_attrs.get("calstudy"), name, self._study_id)
            check_notes(study.user_attrs, name)
            trials = study.get_trials(deepcopy=False)
            for trial in trials:
                check_trial(label, trial)
            if not trials:
                optuna.delete_study(study_name=name, storage=self._storage)
                return self.open(label, objectives)
        else:
            self._drivers.pop(label, None)
            directions: list[Any] = [objective.direction for objective in objectives]
            study = optuna.create_study(
                storage=self._storage, study_name=name, directions=directions
            )
            mark = {"version": VERSION, "id": self._study_id, "label": label, **self._adopted}
            study.set_user_attr("calstudy", mark)
            with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
                # For optuna-dashboard.
                study.set_metric_names([objective.metric for objective in objectives])
        self._studies[label] = study
        self._ids[label] = self._storage.get_study_id_from_name(name)
        self._entries[label] = [trial._trial_id for trial in self._standing(label)]

    # ---- one driver ------------------------------------------------------------------------------

    def check_driver(self, label: str) -> None:
        """Called before every write; the first one is preceded by this driver's number, one above
        the last one's.

        Raises LedgerError if another driver has begun since: nothing more is written.
        """
        self._refuse_another(label)
        last = self._drivers.get(label)
        number, token, _ = _driver(last)
        if token != self._me["token"]:
            mine = {"number": number + 1, "address": address_of(last), **self._me}
            self._studies[label].set_user_attr(DRIVER, mine)
            self._drivers[label] = mine

    def _refuse_another(self, label: str) -> None:
        study_id = self._ids[label]
        try:
            found = self._storage.get_study_user_attrs(study_id).get(DRIVER)
        except KeyError:  # the other one made it anew
            found = {}
        if found != self._drivers.get(label):
            who = _driver(found)[2]
            problem = f"another calstudy process ({who}) runs '{self._name}' now"
            raise LedgerError(f"ledger: {problem}", "This one stops and writes nothing more.")

    # ---- asking ----------------------------------------------------------------------------------

    def add(
        self,
        label: str,
        params: Mapping[str, Value],
        space: Mapping[str, BaseDistribution],
        **facts: Any,
    ) -> TrialRecord:
        """A new trial, RUNNING, with all its parameters, in one write.

        facts: `stack` and `together`, as in its record.
        """
        self.check_driver(label)
        trial = create_trial(
            state=TrialState.RUNNING,
            params=dict(params),
            distributions=dict(space),
            user_attrs=facts,
        )
        added = self._storage.create_new_trial(self._ids[label], template_trial=trial)
        self._entries[label].append(added)
        return self.record(label, len(self._entries[label]) - 1)

    def retry(self, label: str, number: int, extensions: Mapping[str, str]) -> TrialRecord:
        """A RUNNING entry in the place of a failed trial, in one write: with its parameters and its
        decisions of early stopping; its next attempt comes after the failed one's.

        extensions: the digests of its extension files as they are now.
        """
        mark = self.notes(label).get("calstudy", {})
        self.note(label, "calstudy", {**mark, "version": WITH_RETRIES})
        failed = self._trial(label, number)
        record = record_of(label, failed)
        facts: dict[str, Any] = {
            "retries": number,
            "attempt": max(record.attempt, failed.user_attrs.get("attempt", 0)),
            "failed_seconds": record.failed_seconds + (record.seconds or 0.0),
            "extensions": dict(extensions),
        }
        if rungs := failed.user_attrs.get("rungs"):
            facts["rungs"] = rungs
        trial = create_trial(
            state=TrialState.RUNNING,
            params=failed.params,
            distributions=failed.distributions,
            user_attrs=facts,
        )
        entry = self._storage.create_new_trial(self._ids[label], template_trial=trial)
        self._entries[label][number] = entry
        return self.record(label, number)

    def begin_attempt(self, label: str, number: int, attempt: int | None = None) -> int:
        """The number of a new attempt at a RUNNING trial. attempt: that of its stack."""
        if attempt is None:
            attempt = int(self._trial(label, number).user_attrs.get("attempt", 0)) + 1
        self._write(label, number, "attempt", attempt)
        return attempt

    def add_extensions(self, label: str, number: int, used: Mapping[str, str]) -> None:
        """Record the digests of extension files that a RUNNING trial uses, if they are new."""
        known = self.record(label, number).extensions
        if not used.items() <= known.items():
            self._write(label, number, "extensions", {**known, **used})

    def died(self, label: str, number: int, cause: str) -> bool:
        """Record what ended an attempt (a key of MAX_DEATHS); returns whether the trial may be
        retried."""
        deaths = dict(self._trial(label, number).user_attrs.get("deaths", {}))
        deaths[cause] = deaths.get(cause, 0) + 1
        self._write(label, number, "deaths", deaths)
        return deaths[cause] < MAX_DEATHS[cause]

    def add_memory(self, label: str, number: int, memory: Mapping[str, int | None]) -> None:
        """Record the memory of a node, in bytes, where the machine killed the present attempt."""
        trial = self._trial(label, number).user_attrs
        known = {key: value for key, value in memory.items() if value is not None}
        before = trial.get("memory", {})
        self._write(label, number, "memory", {**before, str(trial["attempt"]): known})

    def decide(self, label: str, number: int, epoch: int, decision: Decision) -> None:
        """Record at once what early stopping decided of a RUNNING trial at a rung."""
        before = self._trial(label, number).user_attrs.get("rungs", {})
        self._write(label, number, "rungs", {**before, str(epoch): decision.to_plain()})

    # ---- telling ---------------------------------------------------------------------------------

    def tell(
        self, label: str, number: int, outcome: Outcome, objectives: tuple[Objective, ...]
    ) -> TrialRecord:
        """Record a trial's outcome, then its state; `finish_reported` recovers from a kill between
        the two.

        A complete outcome with a non-finite objective becomes FAIL.
        """
        for objective in objectives:
            value = (outcome.metrics or {}).get(objective.metric, math.nan)
            if outcome.state == "complete" and not math.isfinite(value):
                reason = f"objective {objective.metric} is {value}"
                outcome = replace(outcome, state="failed", reason=reason, metrics={})
        self._write(label, number, "outcome", outcome.to_plain())
        self._close(label, number, outcome, objectives)
        return self.record(label, number)

    def finish_reported(self, label: str, objectives: tuple[Objective, ...]) -> None:
        """Finish trials whose driver was killed between recording outcome and state, or after it
        decided to stop."""
        for trial in self._standing(label):
            if trial.state != TrialState.RUNNING:
                continue
            if "outcome" in trial.user_attrs:
                self.check_driver(label)
                outcome = Outcome.from_plain(trial.user_attrs["outcome"])
                self._close(label, trial.number, outcome, objectives)
            elif stopped := record_of(label, trial).stopped:
                self.tell(label, trial.number, stopped, objectives)

    def _write(self, label: str, number: int, key: str, value: Any) -> None:
        self.check_driver(label)
        self._storage.set_trial_user_attr(self._trial_id(label, number), key, value)

    def _close(
        self, label: str, number: int, outcome: Outcome, objectives: tuple[Objective, ...]
    ) -> None:
        values = None
        if outcome.state == "complete":
            metrics = outcome.metrics or {}
            values = [metrics[objective.metric] for objective in objectives]
        state = OPTUNA_STATES[outcome.state]
        self._storage.set_trial_state_values(self._trial_id(label, number), state, values)

    # ---- facts of a label ------------------------------------------------------------------------

    def note(self, label: str, key: str, value: Any) -> None:
        """Record a fact of the label, in plain values."""
        self.check_driver(label)
        self._studies[label].set_user_attr(key, value)

    def notes(self, label: str) -> Mapping[str, Any]:
        return self._studies[label].user_attrs

    # ---- reading ---------------------------------------------------------------------------------

    def records(self, label: str) -> list[TrialRecord]:
        """The trials of a label by number."""
        return [record_of(label, trial) for trial in self._standing(label)]

    def trials(self) -> Trials:
        """Those of all its labels, as they were opened."""
        places = places_in({label: self.notes(label) for label in self._studies})
        return Trials({label: self.records(label) for label in self._studies}, places)

    def record(self, label: str, number: int) -> TrialRecord:
        return record_of(label, self._trial(label, number))

    def _trial(self, label: str, number: int) -> FrozenTrial:
        return numbered(self._storage.get_trial(self._trial_id(label, number)), number)

    def _trial_id(self, label: str, number: int) -> int:
        return self._entries[label][number]

    def _standing(self, label: str) -> list[FrozenTrial]:
        return standing(label, self._studies[label].get_trials(deepcopy=False))


def open_ledger(study: StudyFolder, address: str | None = LAST) -> tuple[Ledger, list[str]]:
    """The study's ledger with all its labels, and what was repaired in it. That it was made is
    recorded.

    address: as in Ledger. Raises LedgerError if the ledger is missing or lacks trials although the
    study has begun.
    """
    traces = study.traces
    storage, repaired = open_to_write(study.directory, study.ledger, not traces.begun)
    asked = check_same_ledger(storage, traces)
    ledger = Ledger(storage, study.name, study.id, study.recorded.adoptions, address)
    made = traces.made
    if made and not asked:
        # Labels without trials are made anew, and a kill may come in between.
        record_facts(study.directory, ledger_made=False)
        made = False
    for label in study.labels:
        ledger.open(label, study.objectives)
    if not made:
        record_facts(study.directory, ledger_made=True)
    return ledger, repaired


def _driver(fact: Any) -> tuple[int, Any, str]:
    """A driver's number, token and name, whatever stands there."""
    fact = fact if isinstance(fact, dict) else {}
    number = fact.get("number")
    return (
        number if isinstance(number, int) else 0,
        fact.get("token"),
        str(fact.get("who", "unknown"))[:100],
    )


def delete_labels(
    directory: Path,
    ledger: str,
    name: str,
    labels: Iterable[str],
    study_id: str,
    adoptions: int = 0,
) -> None:
    """Remove a study's trials from a ledger it may share with others. One that is not of `study_id`
    stays; so do all where a copy went on since.

    adoptions: how many of them the study's folder knows of.
    """
    if ledger_is_missing(directory, ledger):
        return
    storage, _ = open_to_write(directory, ledger, False)
    there = studies_in(storage)
    if adoptions_in(there, name) > adoptions:
        return
    for label in labels:
        full_name = f"{name}/{label}"
        mark = there.get(full_name, {}).get("calstudy")
        if isinstance(mark, dict) and mark.get("id") == study_id:
            optuna.delete_study(study_name=full_name, storage=storage)
