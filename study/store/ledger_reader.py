"""The ledger as anyone may read it: nothing is created, repaired or written."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from study.schema.errors import LedgerError
from study.store.journal import journal_path, read_journal
from study.store.ledger_facts import check_mark, check_notes, check_trial, studies_in
from study.store.same_ledger import Traces, check_same_ledger, ledger_is_missing
from study.store.trials import Decision, Place, State, TrialRecord, Trials
from trainables.outputs.outcome import Outcome

STATES: dict[TrialState, State] = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
OPTUNA_STATES: dict[str, TrialState] = {ours: theirs for theirs, ours in STATES.items()}
RACE = "race"  # the note of a label's place in a race
DRIVER = "driver"  # the note that names the driver that may write a label
_NOTHING = Outcome(state="interrupted")  # of a trial without an outcome


@dataclass(frozen=True)
class LedgerReader:
    """The trials and facts of one study's labels, as they now are.

    traces: what the ledger must have, where it is known.
    """

    directory: Path
    ledger: str | None
    name: str
    labels: Sequence[str]
    traces: Traces | None = None
    opened: tuple[BaseStorage | None, ...] = ()  # the ledger, if it is held

    def held(self) -> LedgerReader:
        """The reader that opened the ledger now, for all that it is asked. Raises LedgerError."""
        return replace(self, opened=(self.storage(),))

    @property
    def unchecked(self) -> LedgerReader:
        """The reader that takes the ledger for the study's own, whatever it lacks."""
        return replace(self, traces=None)

    def records(self) -> Trials:
        """All trials. Raises LedgerError if the ledger lacks what `traces` say."""
        held = self.held()
        found: dict[str, list[TrialRecord]] = {}
        for label, trials in held.trials().items():
            found[label] = [record_of(label, trial) for trial in trials]
        notes = held.notes()
        return Trials(found, places_in(notes), _address_in(notes, found))

    def trials(self) -> dict[str, list[FrozenTrial]]:
        """`records` as Optuna trials, with their distributions."""
        found: dict[str, list[FrozenTrial]] = {label: [] for label in self.labels}
        for storage, label, study_id in self._present(self.storage()):
            entries = storage.get_all_trials(study_id, deepcopy=False)
            for trial in entries:
                check_trial(label, trial)
            found[label] = standing(label, entries)
        return found

    def notes(self) -> dict[str, Mapping[str, Any]]:
        """The facts of each label that belong to no single trial; `traces` do not matter."""
        notes: dict[str, Mapping[str, Any]] = {label: {} for label in self.labels}
        for storage, label, study_id in self._present(self.unchecked.storage()):
            notes[label] = storage.get_study_user_attrs(study_id)
        return notes

    def _present(self, storage: BaseStorage | None) -> Iterator[tuple[BaseStorage, str, int]]:
        """The labels that have an Optuna study, with its storage and id."""
        if storage is None:
            return
        present = studies_in(storage)
        for label in self.labels:
            name = f"{self.name}/{label}"
            if name in present:
                check_mark(present[name].get("calstudy"), name)
                check_notes(present[name], name)
                yield storage, label, storage.get_study_id_from_name(name)

    def storage(self) -> BaseStorage | None:
        """The Optuna storage; None if it was never made. Raises LedgerError if it lacks what
        `traces` say."""
        if self.opened:
            return self.opened[0]
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        traces = self.traces
        if ledger_is_missing(self.directory, self.ledger):
            if traces is not None and traces.begun:
                raise traces.lost("is missing")
            return None
        path = journal_path(self.directory, self.ledger)
        with _uncollected():
            storage = read_journal(path, follow=self.ledger is not None)
        if traces is not None:
            check_same_ledger(storage, traces)
        return storage


def places_in(notes: Mapping[str, Mapping[str, Any]]) -> dict[str, Place]:
    """By label, its place in a race, from the facts of the labels."""
    return {label: Place(**found[RACE]) for label, found in notes.items() if RACE in found}


def _address_in(
    notes: Mapping[str, Mapping[str, Any]], records: Mapping[str, Sequence[TrialRecord]]
) -> str | None:
    """Of the Ray cluster of the driver that last wrote the label of the newest trial."""
    newest = max(
        chain.from_iterable(records.values()), key=lambda one: one.started or 0, default=None
    )
    return None if newest is None else address_of(notes[newest.label].get(DRIVER))


def address_of(driver: object) -> str | None:
    """Of the Ray cluster that a driver's note names, whatever stands there; None: it names none."""
    address = driver.get("address") if isinstance(driver, dict) else None
    return address if isinstance(address, str) and address and address.isprintable() else None


def standing(label: str, entries: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials of a label by number, from all its entries: a retry, as Optuna's finished trials
    are final, is a later entry that stands in the place of the failed one it names.

    Raises LedgerError if one names a trial that did not fail.
    """
    found: list[FrozenTrial] = []
    for entry in entries:
        place = entry.user_attrs.get("retries", len(found))
        if place == len(found):
            found.append(numbered(entry, place))
        elif 0 <= place < len(found) and found[place].state == TrialState.FAIL:
            found[place] = numbered(entry, place)
        else:
            raise LedgerError(
                f"ledger: a retry names trial {place} of {label}, which did not fail",
                "Restore the ledger from a backup.",
            )
    return found


def numbered(entry: FrozenTrial, number: int) -> FrozenTrial:
    """The entry under its trial's number; Optuna's counts the retries too."""
    if entry.number != number:
        entry = copy.copy(entry)
        entry.number = number
    return entry


def record_of(label: str, trial: FrozenTrial) -> TrialRecord:
    """The record of a trial that was checked when its ledger was opened, or read."""
    facts = trial.user_attrs
    outcome = _NOTHING
    if trial.state.is_finished() and "outcome" in facts:
        outcome = Outcome.from_plain(facts["outcome"])
    attempt = outcome.attempt
    return TrialRecord(
        label=label,
        number=trial.number,
        state=STATES[trial.state],
        params=dict(trial.params),
        metrics=outcome.metrics or {},
        attempt=facts.get("attempt", 0) if attempt is None else attempt,
        digests=outcome.digests or {},
        deaths=facts.get("deaths", {}),
        memory=facts.get("memory", {}),
        started=trial.datetime_start.timestamp() if trial.datetime_start else None,
        ended=trial.datetime_complete.timestamp() if trial.datetime_complete else None,
        extensions=facts.get("extensions", {}),
        stack=facts.get("stack"),
        together=tuple(facts.get("together", ())),
        is_retry="retries" in facts,
        failed_seconds=facts.get("failed_seconds", 0.0),
        rungs={
            epoch: Decision.from_plain(plain) for epoch, plain in facts.get("rungs", {}).items()
        },
        **outcome.training_facts(),
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause garbage collection: a long journal makes many objects, none garbage; collecting would
    cost a third."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
