"""The ledger as a file: Optuna's journal, one JSON object a line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

from trainables.files.atomic import append, retry_until_space


class PatientJournal(JournalFileBackend):
    """Optuna's journal on a disk that may fill up: an append writes all its lines, or none and waits for space."""

    def __init__(self, path: Path) -> None:
        self._journal, self._own_lock = path, JournalFileSymlinkLock(str(path))
        super().__init__(str(path), self._own_lock)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)

        def write() -> None:
            self._own_lock.acquire()
            try:
                append(self._journal, lines.encode(), durable=True, follow=True)  # a ledger may be linked
            finally:
                self._own_lock.release()

        retry_until_space(write)  # the lock is a file too


def journal_path(directory: Path, ledger: str | None) -> Path:
    return Path(ledger) if ledger is not None else directory / "ledger.log"


def repair_journal(path: Path) -> list[str]:
    """Repair what a killed driver left, under the driver's lock; returns what was repaired.

    An incomplete last line was never acknowledged, and the next write would be appended to it: it is removed. A stale
    lock of the journal would delay the next write by 30 seconds: it is removed too.
    """
    repaired = []
    for lock in path.parent.glob(path.name + ".lock*"):
        lock.unlink(missing_ok=True)
        repaired.append(f"removed the stale {lock.name}")
    if path.exists():
        whole = _whole_length(path)
        torn = path.stat().st_size - whole
        if torn:
            os.truncate(path, whole)
            repaired.append(f"removed an incomplete last line of {torn} bytes from {path.name}")
    return repaired


def _whole_length(path: Path) -> int:
    """Bytes up to and including the last newline."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0
