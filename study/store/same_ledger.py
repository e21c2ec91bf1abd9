"""No fresh ledger over old results: what a study's folder says of its ledger, compared with what
the ledger has."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from optuna.storages import BaseStorage

from study.schema.errors import LedgerError
from study.store.journal import journal_path
from study.store.ledger_facts import adoptions_in, studies_in
from study.store.trials import trial_directory, trial_name
from trainables.outputs.attempts import attempts_in


@dataclass(frozen=True)
class Traces:
    """What a study's folder says of its ledger. Read it before the ledger, where a trial is
    recorded first."""

    directory: Path
    ledger: str | None
    name: str
    study_id: str
    made: bool  # study.yaml records that the ledger was made
    folders: Mapping[str, Iterable[int]]  # by label: the numbers of the trials that have a folder
    adoptions: int = 0  # how often a copy of the study went on, as study.yaml records

    def beyond(self, counts: Mapping[str, int]) -> Iterator[str]:
        """The trials with an attempt on disk, apart from the first `counts` of each label."""
        for label, numbers in self.folders.items():
            for number in sorted(number for number in numbers if number >= counts.get(label, 0)):
                if attempts_in(trial_directory(self.directory, label, number)):
                    yield trial_name(label, number)

    @property
    def trained(self) -> bool:
        """Whether a trial has an attempt on disk."""
        return next(self.beyond({}), None) is not None

    @property
    def begun(self) -> bool:
        """Whether there must be a ledger."""
        return self.made or self.trained

    def lost(self, problem: str, has: str = "has begun") -> LedgerError:
        ledger = self.ledger if self.ledger is not None else str(journal_path(self.directory, None))
        return LedgerError(
            f"ledger: {ledger} {problem}, but the study at {self.directory} {has}",
            "Mount or restore its ledger; if that is lost for good, start again under a new name.",
        )


def traces_of(
    directory: Path,
    ledger: str | None,
    name: str,
    study_id: str,
    labels: Iterable[str],
    made: bool,
    adoptions: int = 0,
) -> Traces:
    folders = {label: _numbers(directory / "trials" / label) for label in labels}
    return Traces(directory, ledger, name, study_id, made, folders, adoptions)


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isascii() and name.isdecimal()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def ledger_is_missing(directory: Path, ledger: str | None) -> bool:
    return not journal_path(directory, ledger).exists()


def check_same_ledger(storage: BaseStorage, traces: Traces) -> bool:
    """Raise LedgerError unless the storage has what a study that has begun recorded in it.

    That is: a label with the study's id, if its ledger was made, every trial that has an attempt on
    disk, and no more moves than the study's folder knows of. Returns whether any trial was
    asked.
    """
    ids = set()
    studies = {}
    there = studies_in(storage)
    for full_name, found in there.items():
        study, _, label = full_name.rpartition("/")
        if study == traces.name:
            mark = found.get("calstudy")
            ids.add(mark.get("id") if isinstance(mark, dict) else None)
            studies[label] = storage.get_study_id_from_name(full_name)
    if not ids and traces.begun:
        raise traces.lost("has no record of it")
    if traces.made and traces.study_id not in ids:
        raise traces.lost("is of another study")
    if traces.study_id in ids and adoptions_in(there, traces.name) > traces.adoptions:
        ledger = traces.ledger or "ledger.log"
        raise LedgerError(
            f"ledger: {ledger} belongs to a copy of {traces.directory} that went on since",
            "Go on there; or, if that one is gone, run the study in this folder with --moved.",
        )
    counts = {label: storage.get_n_trials(study_id) for label, study_id in studies.items()}
    if missing := next(traces.beyond(counts), None):
        raise traces.lost(f"has no {missing}", f"has trials/{missing}")
    return any(counts.values())
