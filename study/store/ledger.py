"""The ledger: every fact about a trial is recorded here first.

One Optuna study per method label, in one storage: a journal file (STUDY/ledger.log) or an RDB URL. One driver at a
time writes it, under a lock; anyone may read it.
"""

from __future__ import annotations

import gc
import math
import os
import socket
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from study.schema.errors import LedgerError
from study.schema.objective import Objective
from study.store.connection import is_database, is_ready
from study.store.database import DRIVER, Database, Waiting, open_database, read_database
from study.store.database_lock import DatabaseLock
from study.store.journal import journal_path, open_journal, read_journal
from study.store.ledger_facts import VERSION, check_mark, check_notes, check_trial, studies_in
from study.store.same_ledger import Traces, check_same_ledger, ledger_is_missing
from study.store.trials import State, TrialRecord

# How many attempts of a trial may die of each cause (other than the driver's death) before it is FAIL. A lost
# node is not the trial's fault; after an out-of-memory error it is retried once, on a whole GPU.
MAX_DEATHS = {"process": 3, "node": 20, "out_of_memory": 2}
_STATES: dict[TrialState, State] = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
_OPTUNA_STATES = {state: optuna_state for optuna_state, state in _STATES.items()}


def open_storage(
    directory: Path,
    ledger: str | None,
    lock: DatabaseLock | None = None,
    waiting: Waiting | None = None,
) -> BaseStorage:
    """The Optuna storage of a study: its own journal, one elsewhere (a path), or an RDB (a URL); made if missing."""
    return open_to_write(directory, ledger, True, lock, waiting)[0]


def open_to_write(
    directory: Path,
    ledger: str | None,
    create: bool,
    lock: DatabaseLock | None = None,
    waiting: Waiting | None = None,
) -> tuple[BaseStorage, list[str]]:
    """`open_storage`, under the driver's lock; and what was repaired in it. lock: what `driver_lock` gave."""
    if is_database(ledger):
        return open_database(ledger, lock, waiting, create), []
    return open_journal(journal_path(directory, ledger), create, follow=ledger is not None)


class Ledger:
    """The trials of one study, by label and number."""

    def __init__(self, storage: BaseStorage, name: str, study_id: str) -> None:
        self._storage, self._name, self._study_id = storage, name, study_id
        self._studies: dict[str, Study] = {}
        self._ids: dict[str, int] = {}
        self._drivers: dict[str, Any] = {}  # by label: the last driver there was
        self._me: dict[str, str] = {
            "who": f"pid {os.getpid()} on {socket.gethostname()}",
            "token": uuid.uuid4().hex,
        }
        self.waiting = storage.waiting if isinstance(storage, Database) else Waiting()

    def open(self, label: str, objectives: tuple[Objective, ...]) -> None:
        """Create or reopen the Optuna study of a label. Raises LedgerError if it belongs to another study.

        One without any asked trial is recreated: its enqueued trials may come from an older spec.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        name = f"{self._name}/{label}"
        # Optuna's `load_if_exists` writes to the journal on every load.
        if name in studies_in(self._storage):
            study = optuna.load_study(study_name=name, storage=self._storage)
            self._drivers[label] = study.user_attrs.get(DRIVER)
            check_mark(study.user_attrs.get("calstudy"), name, self._study_id)
            check_notes(study.user_attrs, name)
            for trial in study.get_trials(deepcopy=False):
                check_trial(label, trial)
            if not any(trial.state in _STATES for trial in study.get_trials(deepcopy=False)):
                optuna.delete_study(study_name=name, storage=self._storage)
                return self.open(label, objectives)
        else:
            self._drivers.pop(label, None)
            directions = [StudyDirection[objective.direction.upper()] for objective in objectives]
            study = optuna.create_study(
                storage=self._storage, study_name=name, directions=directions
            )
            study.set_user_attr(
                "calstudy", {"version": VERSION, "id": self._study_id, "label": label}
            )
            with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
                study.set_metric_names(
                    [objective.metric for objective in objectives]
                )  # for optuna-dashboard
        self._studies[label], self._ids[label] = study, self._storage.get_study_id_from_name(name)

    # ---- one driver ------------------------------------------------------------------------------------------------

    def check_driver(self, label: str) -> None:
        """Called before every write; the first one is preceded by this driver's number, one above the last one's.

        Raises LedgerError if another driver has begun since: nothing more is written.
        """
        self._refuse_another(label)
        number, token, _ = _driver(self._drivers.get(label))
        if token != self._me["token"]:
            mine = {"number": number + 1, **self._me}
            self._studies[label].set_user_attr(DRIVER, mine)
            self._drivers[label] = mine

    def _refuse_another(self, label: str) -> None:
        study_id = self._ids[label]
        try:
            if isinstance(self._storage, Database):
                found = self._storage.driver_of(study_id)
            else:
                found = self._storage.get_study_user_attrs(study_id).get(DRIVER)
        except KeyError:  # the other one made it anew
            found = {}
        if found != self._drivers.get(label):
            who = _driver(found)[2]
            problem = f"another calstudy process ({who}) runs '{self._name}' now"
            raise LedgerError(f"ledger: {problem}. This one stops and writes nothing more.")

    # ---- asking ----------------------------------------------------------------------------------------------------

    def add(
        self, label: str, params: Mapping[str, Any], space: Mapping[str, BaseDistribution]
    ) -> TrialRecord:
        """A new trial, RUNNING, with all its parameters, in one write."""
        self.check_driver(label)
        trial = create_trial(
            state=TrialState.RUNNING, params=dict(params), distributions=dict(space)
        )
        added = self._storage.create_new_trial(self._ids[label], template_trial=trial)
        return _record(label, self._storage.get_trial(added))

    def half_asked(
        self, label: str, space: Mapping[str, BaseDistribution]
    ) -> dict[int, dict[str, Any]]:
        """By number, the values of trials without all parameters, as older versions left them.

        Those wait for their turn that were enqueued; of others the driver was killed while asking.
        """
        return {
            trial.number: {**trial.system_attrs.get("fixed_params", {}), **trial.params}
            for trial in self._studies[label].get_trials(deepcopy=False)
            if trial.state == TrialState.WAITING
            or (trial.state == TrialState.RUNNING and not set(space) <= set(trial.params))
        }

    def complete(
        self,
        label: str,
        number: int,
        params: Mapping[str, Any],
        space: Mapping[str, BaseDistribution],
    ) -> TrialRecord:
        """A half-asked trial, RUNNING, with the parameters it lacked."""
        self.check_driver(label)
        trial, trial_id = self._trial(label, number), self._trial_id(label, number)
        if trial.state == TrialState.WAITING:
            self._storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        for path, distribution in space.items():
            if path not in trial.params:
                value = distribution.to_internal_repr(params[path])
                self._storage.set_trial_param(trial_id, path, value, distribution)
        return self.record(label, number)

    def begin_attempt(
        self, label: str, number: int, extensions: Mapping[str, str] | None = None
    ) -> int:
        """The number of a new attempt at a RUNNING trial. extensions: the digests of the files it uses."""
        self.check_driver(label)
        if extensions and extensions != self.record(label, number).extensions:
            self._storage.set_trial_user_attr(
                self._trial_id(label, number), "extensions", dict(extensions)
            )
        attempt = int(self._trial(label, number).user_attrs.get("attempt", 0)) + 1
        self._storage.set_trial_user_attr(self._trial_id(label, number), "attempt", attempt)
        return attempt

    def died(self, label: str, number: int, cause: str) -> bool:
        """Record what ended an attempt (a key of MAX_DEATHS); returns whether the trial may be retried."""
        self.check_driver(label)
        deaths = dict(self._trial(label, number).user_attrs.get("deaths", {}))
        deaths[cause] = deaths.get(cause, 0) + 1
        self._storage.set_trial_user_attr(self._trial_id(label, number), "deaths", deaths)
        return deaths[cause] < MAX_DEATHS[cause]

    def decide(self, label: str, number: int, epoch: int, entry: dict[str, Any]) -> None:
        """Record at once what early stopping decided of a RUNNING trial at a rung, and the outcome if it stops.

        place: how many of the label were decided before it there; costs: smaller is better; goes_on; attempt and
        digests: where its predictions are.
        """
        self.check_driver(label)
        rungs = {**self.record(label, number).rungs, str(epoch): entry}
        self._storage.set_trial_user_attr(self._trial_id(label, number), "rungs", rungs)

    # ---- telling ---------------------------------------------------------------------------------------------------

    def tell(
        self, label: str, number: int, outcome: dict[str, Any], objectives: tuple[Objective, ...]
    ) -> TrialRecord:
        """Record a trial's outcome, then its state; `finish_reported` recovers from a kill between the two.

        A complete outcome with a non-finite objective becomes FAIL.
        """
        for objective in objectives:
            value = outcome.get("metrics", {}).get(objective.metric, math.nan)
            if outcome["state"] == "complete" and not math.isfinite(value):
                reason = f"objective {objective.metric} is {value}"
                outcome = {**outcome, "state": "failed", "reason": reason, "metrics": {}}
        self.check_driver(label)
        self._storage.set_trial_user_attr(self._trial_id(label, number), "outcome", outcome)
        self._close(label, number, outcome, objectives)
        return self.record(label, number)

    def finish_reported(self, label: str, objectives: tuple[Objective, ...]) -> None:
        """Finish trials whose driver was killed between recording outcome and state, or after it decided to stop."""
        for trial in self._studies[label].get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if "outcome" in trial.user_attrs:
                self.check_driver(label)
                self._close(label, trial.number, trial.user_attrs["outcome"], objectives)
            elif outcome := _record(label, trial).stopped:
                self.tell(label, trial.number, outcome, objectives)

    def _close(
        self, label: str, number: int, outcome: dict[str, Any], objectives: tuple[Objective, ...]
    ) -> None:
        state = _OPTUNA_STATES[outcome["state"]]
        complete = outcome["state"] == "complete"
        values = (
            [outcome["metrics"][objective.metric] for objective in objectives] if complete else None
        )
        self._storage.set_trial_state_values(self._trial_id(label, number), state, values)

    # ---- facts of a label ------------------------------------------------------------------------------------------

    def note(self, label: str, key: str, value: Any) -> None:
        """Record a fact of the label, in plain values."""
        self.check_driver(label)
        self._studies[label].set_user_attr(key, value)

    def notes(self, label: str) -> dict[str, Any]:
        return self._studies[label].user_attrs

    # ---- reading ---------------------------------------------------------------------------------------------------

    def records(self, label: str) -> list[TrialRecord]:
        """The trials of a label by number, without enqueued ones."""
        trials = self._studies[label].get_trials(deepcopy=False)
        return [_record(label, trial) for trial in trials if trial.state in _STATES]

    def record(self, label: str, number: int) -> TrialRecord:
        return _record(label, self._trial(label, number))

    def _trial(self, label: str, number: int) -> FrozenTrial:
        return self._storage.get_trial(self._trial_id(label, number))

    def _trial_id(self, label: str, number: int) -> int:
        study_id = self._storage.get_study_id_from_name(f"{self._name}/{label}")
        return self._storage.get_trial_id_from_study_id_trial_number(study_id, number)


def _driver(fact: Any) -> tuple[int, Any, str]:
    """A driver's number, token and name, whatever stands there."""
    fact = fact if isinstance(fact, dict) else {}
    number = fact.get("number")
    return (
        number if isinstance(number, int) else 0,
        fact.get("token"),
        str(fact.get("who", "unknown"))[:100],
    )


def _record(label: str, trial: FrozenTrial) -> TrialRecord:
    """Of a trial that was checked when its ledger was opened, or read."""
    outcome = trial.user_attrs.get("outcome", {}) if trial.state.is_finished() else {}
    return TrialRecord(
        label=label,
        number=trial.number,
        state=_STATES[trial.state],
        params=dict(trial.params),
        metrics=outcome.get("metrics", {}),
        attempt=outcome.get("attempt", trial.user_attrs.get("attempt", 0)),
        epoch=outcome.get("epoch"),
        seconds=outcome.get("seconds"),
        samples=outcome.get("samples"),
        reason=outcome.get("reason"),
        digests=outcome.get("digests", {}),
        deaths=trial.user_attrs.get("deaths", {}),
        started=trial.datetime_start.timestamp() if trial.datetime_start else None,
        ended=trial.datetime_complete.timestamp() if trial.datetime_complete else None,
        device=outcome.get("device", "cpu"),
        training=outcome.get("training", {}),
        versions=outcome.get("versions", {}),
        extensions=trial.user_attrs.get("extensions", {}),
        rungs=trial.user_attrs.get("rungs", {}),
    )


def read_records(
    directory: Path, ledger: str | None, name: str, labels: list[str], traces: Traces | None = None
) -> dict[str, list[TrialRecord]]:
    """All trials by label, read-only: nothing is created, repaired or written.

    traces: what the ledger must have. Raises LedgerError if it does not.
    """
    trials = read_trials(directory, ledger, name, labels, traces)
    return {label: [_record(label, trial) for trial in found] for label, found in trials.items()}


def read_trials(
    directory: Path, ledger: str | None, name: str, labels: list[str], traces: Traces | None = None
) -> dict[str, list[FrozenTrial]]:
    """`read_records` as Optuna trials, with their distributions; without enqueued ones."""
    found: dict[str, list[FrozenTrial]] = {label: [] for label in labels}
    for storage, label in _present(directory, ledger, name, labels, traces):
        found[label] = [
            trial for trial in _checked_trials(storage, name, label) if trial.state in _STATES
        ]
    return found


def _checked_trials(storage: BaseStorage, name: str, label: str) -> list[FrozenTrial]:
    trials = storage.get_all_trials(
        storage.get_study_id_from_name(f"{name}/{label}"), deepcopy=False
    )
    for trial in trials:
        check_trial(label, trial)
    return trials


def read_enqueued(
    directory: Path, ledger: str | None, name: str, labels: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """The settings that were enqueued, in order, of each label with a trial."""
    found = {}
    for storage, label in _present(directory, ledger, name, labels):
        trials = _checked_trials(storage, name, label)
        if any(trial.state in _STATES for trial in trials):
            found[label] = [
                trial.system_attrs["fixed_params"]
                for trial in trials
                if "fixed_params" in trial.system_attrs
            ]
    return found


def delete_labels(
    directory: Path,
    ledger: str,
    name: str,
    labels: Iterable[str],
    study_id: str,
    lock: DatabaseLock | None,
) -> None:
    """Remove a study's trials from a ledger it may share with others. One that is not of `study_id` stays.

    lock: what `driver_lock` gave.
    """
    if ledger_is_missing(directory, ledger) or (is_database(ledger) and not is_ready(ledger)):
        return
    storage, _ = open_to_write(directory, ledger, False, lock)
    there = studies_in(storage)
    for label in labels:
        found = there.get(f"{name}/{label}")
        mark = found.user_attrs.get("calstudy") if found is not None else None
        if found is not None and isinstance(mark, dict) and mark.get("id") == study_id:
            optuna.delete_study(study_name=found.study_name, storage=storage)


def read_notes(
    directory: Path, ledger: str | None, name: str, labels: list[str]
) -> dict[str, dict[str, Any]]:
    """The facts of each label that belong to no single trial, read-only."""
    notes: dict[str, dict[str, Any]] = {label: {} for label in labels}
    for storage, label in _present(directory, ledger, name, labels):
        notes[label] = storage.get_study_user_attrs(
            storage.get_study_id_from_name(f"{name}/{label}")
        )
    return notes


def _present(
    directory: Path, ledger: str | None, name: str, labels: list[str], traces: Traces | None = None
) -> Iterator[tuple[BaseStorage, str]]:
    """The labels that have an Optuna study, and its storage."""
    storage = storage_to_read(directory, ledger, traces)
    if storage is None:
        return
    present = studies_in(storage)
    for label in labels:
        study = present.get(f"{name}/{label}")
        if study is not None:
            check_mark(study.user_attrs.get("calstudy"), study.study_name)
            check_notes(study.user_attrs, study.study_name)
            yield storage, label


def storage_to_read(
    directory: Path, ledger: str | None, traces: Traces | None = None
) -> BaseStorage | None:
    """The Optuna storage of a study; None if it was never made. Raises LedgerError if it lacks what `traces` say."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if ledger_is_missing(directory, ledger):
        if traces is not None and traces.begun:
            raise traces.lost("is missing")
        return None
    storage: BaseStorage | None
    if is_database(ledger):
        storage = read_database(ledger)
        if storage is None and traces is not None and traces.begun:
            raise traces.lost("has no record of it")
    else:
        with _uncollected():
            storage = read_journal(journal_path(directory, ledger), follow=ledger is not None)
    if storage is not None and traces is not None:
        check_same_ledger(storage, traces)
    return storage


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause garbage collection: a long journal makes many objects, none garbage; collecting would cost a third."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
