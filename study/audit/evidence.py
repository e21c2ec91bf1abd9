"""The evidence of an audit, read once, and so that a running driver gives no false alarms.

Directories are read first, then MLflow, then the ledger, where everything is recorded first.
Whether a driver is running is checked before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from study.schema.uris import TrackingError
from study.store.driver_lock import driver_is_alive
from study.store.openings import Tested, read_tested
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials, trial_name
from study.tracking.reader import TrackedRun, read_runs


@dataclass(frozen=True)
class Evidence:
    study: StudyFolder
    alive: bool
    folders: set[str]  # on disk, by trial
    runs: list[TrackedRun]
    unreachable: str | None  # why MLflow cannot be read
    notes: Mapping[str, Mapping[str, Any]]  # by label: openings of the test split
    tested: Mapping[str, Mapping[int, Tested]]  # results on it, by label and number
    values: Mapping[str, list[float] | None]  # that the sampler uses, of finished trials
    records: Trials

    def tested_of(self, record: TrialRecord) -> Tested | None:
        return self.tested[record.label].get(record.number)

    @property
    def unknown(self) -> list[str]:
        """Trials with a directory that are not in the ledger."""
        return sorted(self.folders - {record.name for record in self.records})

    @property
    def goes_on(self) -> str:
        """The command that runs missing trials."""
        return f"`{self.study.goes_on}`"

    @property
    def sync(self) -> str:
        """The command that uploads what MLflow lacks, and corrects what is its own."""
        return f"`{self.study.command('sync')}`"

    @property
    def goes_on_later(self) -> bool:
        """Whether a driver runs or has to be started: it resolves what a kill leaves behind."""
        return self.alive or bool(self.study.lacking(self.records))


def gather(study: StudyFolder, tracking_uri: str, histories: float | None = None) -> Evidence:
    """Read everything. Raises LedgerError if the ledger cannot be read. histories: as in
    `read_runs`."""
    alive = driver_is_alive(study.directory, study.ledger)
    folders = {f"{path.parent.name}/{path.name}" for path in study.directory.glob("trials/*/*/")}
    runs = []
    unreachable = None
    try:
        runs = read_runs(tracking_uri, study.id, histories)
    except TrackingError as error:
        unreachable = error.found
    reader = study.reader.held()
    values = {
        trial_name(label, trial.number): trial.values
        for label, trials in reader.trials().items()
        for trial in trials
        if trial.state.is_finished()
    }
    records = study.records(reader)
    # A driver that started or ended while we read also changed what we read.
    alive = alive or driver_is_alive(study.directory, study.ledger)
    tested = read_tested(study, reader)
    return Evidence(
        study, alive, folders, runs, unreachable, reader.notes(), tested, values, records
    )
