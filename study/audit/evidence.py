"""The evidence of an audit, read once, and so that a running driver gives no false alarms.

Directories are read first, then MLflow, then the ledger, where everything is recorded first.
Whether a driver is running is checked before and after.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage

from study.schema.uris import TrackingError
from study.store.driver_lock import driver_is_alive
from study.store.ledger_facts import check_notes, studies_in
from study.store.openings import tested_in
from study.store.study import Study
from study.store.trials import Trials, trial_name
from study.tracking.reader import TrackedRun, read_runs


@dataclass(frozen=True)
class LabelState:
    """A label's Optuna study, apart from its trials."""

    mark: Mapping[str, object] | None
    directions: list[str]
    notes: Mapping[str, Any]  # openings of the test split and their results
    values: dict[int, list[float] | None]


@dataclass(frozen=True)
class Evidence:
    study: Study
    alive: bool
    attempts: dict[str, set[int]]  # on disk, by trial
    runs: list[TrackedRun]
    unreachable: str | None  # why MLflow cannot be read
    labels: dict[str, LabelState]
    records: Trials

    @property
    def values(self) -> dict[str, list[float] | None]:
        """The values of finished trials that the sampler uses."""
        found: dict[str, list[float] | None] = {}
        for label, state in self.labels.items():
            found |= {trial_name(label, number): one for number, one in state.values.items()}
        return found

    @property
    def tested(self) -> dict[str, dict[str, float]]:
        """Test results that are tracked, by trial."""
        found: dict[str, dict[str, float]] = {}
        for label, state in self.labels.items():
            for number, tested in tested_in(state.notes).items():
                found[trial_name(label, number)] = {
                    key: value for key, value in tested.flat.items() if math.isfinite(value)
                }
        return found

    @property
    def goes_on(self) -> str:
        """The command that runs missing trials."""
        return f"`{self.study.goes_on}`"

    @property
    def goes_on_later(self) -> bool:
        """Whether a driver runs or has to be started: it resolves what a kill leaves behind."""
        return self.alive or bool(self.study.lacking(self.records))

    @property
    def sync(self) -> str:
        """The command that uploads what MLflow lacks."""
        return f"`{self.study.command('sync')}`"


def gather(study: Study, tracking_uri: str, histories: float | None = None) -> Evidence:
    """Read everything. Raises LedgerError if the ledger cannot be read. histories: as in
    `read_runs`."""
    alive = driver_is_alive(study.directory, study.ledger)
    attempts = _attempts_on_disk(study.directory / "trials")
    runs = []
    unreachable = None
    try:
        runs = read_runs(tracking_uri, study.name, study.id, histories)
    except TrackingError as error:
        unreachable = error.found
    reader = study.reader.held()
    records = study.records(reader)
    labels = _label_states(study, reader.storage())
    # A driver that started or ended while we read also changed what we read.
    alive = alive or driver_is_alive(study.directory, study.ledger)
    return Evidence(study, alive, attempts, runs, unreachable, labels, records)


def _label_states(study: Study, storage: BaseStorage | None) -> dict[str, LabelState]:
    """The state of every label in the ledger."""
    prefix = f"{study.name}/"
    states: dict[str, LabelState] = {}
    if storage is None:
        return states
    for name, facts in studies_in(storage).items():
        if not name.startswith(prefix):
            continue
        check_notes(facts, name)
        study_id = storage.get_study_id_from_name(name)
        trials = storage.get_all_trials(study_id, deepcopy=False)
        states[name.removeprefix(prefix)] = LabelState(
            facts.get("calstudy"),
            [direction.name.lower() for direction in storage.get_study_directions(study_id)],
            facts,
            {trial.number: trial.values for trial in trials if trial.state.is_finished()},
        )
    return states


def _attempts_on_disk(trials: Path) -> dict[str, set[int]]:
    """Attempt numbers by trial: {"focal/0007": {1, 2}}."""
    found: dict[str, set[int]] = {}
    for label in _folders(trials):
        for number in _folders(label):
            names = [re.fullmatch(r"attempt-(\d+)", attempt.name) for attempt in _folders(number)]
            found[f"{label.name}/{number.name}"] = {int(name[1]) for name in names if name}
    return found


def _folders(directory: Path) -> Iterator[Path]:
    try:
        with os.scandir(directory) as entries:
            yield from [Path(entry.path) for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return
