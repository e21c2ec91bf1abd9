"""MLflow as a projection of the ledger: only the driver writes it, and `sync` can rebuild it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from study.store.history import HistoryError
from study.store.trials import Listener, TrialRecord
from study.tracking.client import asking, environment, what_happened
from study.tracking.writer import StudyRuns

if TYPE_CHECKING:
    from study.store.study import StudyFolder

FIRST_PAUSE = 1.0  # seconds between attempts to reach a server
LONGEST_PAUSE = 60.0
# Seconds to wait for tracking when the study ends in an error or is asked to stop.
FAULT_PATIENCE = 5.0
LONGEST_CLOSE = 600.0  # seconds that the last upload may take, with progress or without


@dataclass(frozen=True)
class SyncReport:
    """The result of `sync`; `removed`: duplicate runs. `note`: a failure that affects no trial.

    damaged: why trials were not written whose history no retry restores, one line each.
    """

    written: int
    present: int
    removed: int
    note: str | None = None
    damaged: tuple[str, ...] = ()


def sync(study: StudyFolder, uri: str) -> SyncReport:
    """Write the trials missing in MLflow. Raises TrackingError, or LedgerError if a driver runs."""
    from study.store.driver_lock import driver_lock

    with driver_lock(study.directory, study.ledger, writes=False):
        records = study.records()
        finished = records.finished
        runs = StudyRuns(study, uri)
        written = 0
        damaged: list[str] = []
        with asking(uri):
            runs.open()
            for record in finished:
                try:
                    written += runs.write(record)
                except HistoryError as error:
                    damaged.append(f"{error}")
            runs.end(not study.lacking(records), records)
    present = len(finished) - written - len(damaged)
    return SyncReport(written, present, runs.removed, runs.note, tuple(damaged))


class Projection(Listener):
    """Follows a running study in its own thread. Never raises into the study or blocks it."""

    def __init__(
        self, study: StudyFolder, uri: str, stop_requested: Callable[[], bool] = lambda: False
    ) -> None:
        self._study = study
        self._uri = uri
        self._stop_requested = stop_requested
        self._thread = threading.Thread(target=self._follow, name="mlflow", daemon=True)
        self._changed = threading.Condition()
        self._pending: dict[str, TrialRecord] = {}  # by name, in order
        self._closing = threading.Event()
        self._abandoned = False
        self._complete = False
        # Whether MLflow has every finished trial, and the end of the study's run.
        self.whole = False
        self._advanced = 0.0  # when something last succeeded, monotonic seconds
        self._tracked: set[str] = set()
        # Why MLflow is incomplete, or what it lacks besides trials, on one line; None: nothing.
        self.trouble: str | None = None
        self._stumbled = False
        self._pause = FIRST_PAUSE

    def __enter__(self) -> Projection:
        """Start, with the finished trials missing in MLflow first. Returns immediately."""
        self._thread.start()
        return self

    def __exit__(self, *fault: object) -> None:
        if not self._closing.is_set():
            self.close(False, FAULT_PATIENCE)

    def finished(self, record: TrialRecord) -> None:
        """Queue a finished trial. Returns immediately."""
        with self._changed:
            self._pending[record.name] = record
            self._changed.notify()

    def close(self, complete: bool, patience: float) -> int:
        """Write what is left and end the study's run; give up after `patience` seconds without
        progress, or LONGEST_CLOSE with it, or sooner if the study is asked to stop.

        Returns the number of finished trials missing in MLflow. Called again, it only waits.
        """
        with self._changed:
            if not self._closing.is_set():
                self._complete = complete
            self._closing.set()
            self._changed.notify()
        started = time.monotonic()
        while self._thread.is_alive():
            limit = patience
            if self._stop_requested():
                limit = min(patience, FAULT_PATIENCE)
            now = time.monotonic()
            if now - max(started, self._advanced) > limit or now - started > LONGEST_CLOSE:
                self._abandoned = True
                break
            self._thread.join(0.05)
        with self._changed:
            return len(self._pending)

    # ---- the thread ------------------------------------------------------------------------------

    def _follow(self) -> None:
        with environment():
            while not self._abandoned:
                try:
                    self._project()
                    return
                except Exception as error:
                    self.trouble = what_happened(error, self._uri)
                    self._stumbled = True
                if self._closing.is_set():
                    time.sleep(FIRST_PAUSE)
                else:
                    self._closing.wait(self._pause)
                    self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _project(self) -> None:
        """Open the server, write, end the study's run. Called again after an error, it resumes."""
        read = self._study.records()
        with self._changed:
            known = {
                record.name: record for record in read.finished if record.name not in self._tracked
            }
            self._pending = known | self._pending
        runs = StudyRuns(self._study, self._uri)
        runs.open()
        runs.resume()
        # Opening it again is no progress: a server may read and refuse writes.
        if not self._advanced:
            self._succeeded(runs)
        while record := self._next():
            try:
                runs.write(record)
            except HistoryError as error:  # no retry restores it
                runs.note = f"not in MLflow: {error}"
            with self._changed:
                self._pending.pop(record.name, None)
                self._tracked.add(record.name)
            self._succeeded(runs)
        if self._abandoned:
            return
        if self._stumbled:
            runs.open()  # a run whose creation seemed to fail may exist after all
        runs.end(self._complete)
        self._succeeded(runs)
        self.whole = True

    def _succeeded(self, runs: StudyRuns) -> None:
        self.trouble = runs.note
        self._pause = FIRST_PAUSE
        self._advanced = time.monotonic()

    def _next(self) -> TrialRecord | None:
        """The next trial to write, once there is one; None when the study has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closing.is_set())
            if self._abandoned:
                return None
            return next(iter(self._pending.values()), None)
