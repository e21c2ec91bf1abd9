"""The ledger as a file: Optuna's journal, one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalFileSymlinkLock

from study.schema.errors import LedgerError
from trainables.files.atomic import append, retry_until_space

TAIL = 200  # bytes at the end of a journal by which it is known again


class LedgerLost(OSError):
    """The ledger went away or was replaced while it was in use."""


class PatientJournal(JournalFileBackend):
    """Optuna's journal on a disk that may fill up, or go away.

    An append writes all its lines, or none and waits for space. It goes to the file that was opened, which it never
    creates anew. create: make the file if there is none.
    """

    def __init__(self, path: Path, create: bool = True) -> None:
        self._journal, self._own_lock = path, JournalFileSymlinkLock(str(path))
        if not create and not path.exists():
            raise self._lost("is missing")
        super().__init__(str(path), self._own_lock)
        self._known = self._tail()

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)

        def write() -> None:
            self._check_same()  # before the lock, which is a file too
            self._own_lock.acquire()
            try:
                append(self._journal, lines.encode(), durable=True, create=False)
                self._known = self._tail()
            finally:
                self._own_lock.release()

        retry_until_space(write)

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        try:
            yield from super().read_logs(log_number_from)
        except FileNotFoundError:
            raise self._lost("is missing") from None

    def _tail(self, end: int | None = None) -> tuple[int, bytes]:
        """Where the file ends, and its last bytes before that."""
        with self._journal.open("rb") as file:
            end = file.seek(0, os.SEEK_END) if end is None else end
            file.seek(max(0, end - TAIL))
            return end, file.read(min(TAIL, end))

    def _check_same(self) -> None:
        try:
            if self._tail(self._known[0]) != self._known:
                raise self._lost("was replaced")
        except FileNotFoundError:
            raise self._lost("is missing") from None

    def _lost(self, problem: str) -> LedgerLost:
        return LedgerLost(f"the ledger {self._journal} {problem}. Mount or restore it, then run the command again.")


class _Lines(BaseJournalBackend):
    """The lines of a journal that was read, counted as Optuna applies them."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines, self.reached = lines, 0

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        for self.reached, line in enumerate(self._lines[log_number_from:], start=log_number_from + 1):
            yield json.loads(line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        raise AssertionError("these lines are read only")


def journal_path(directory: Path, ledger: str | None) -> Path:
    return Path(ledger) if ledger is not None else directory / "ledger.log"


def read_journal(path: Path) -> JournalStorage:
    """A journal, to read. Raises LedgerError naming a line that is no record of Optuna's.

    If that is the last line it is left out, as an incomplete one is: the next driver removes it.
    """
    try:
        return JournalStorage(PatientJournal(path, create=False))
    except OSError:
        raise
    except Exception:  # whatever a line makes Optuna raise
        lines, broken = _replayed(path)
        return JournalStorage(_Lines(lines if broken is None else lines[:-1]))


def open_journal(path: Path, create: bool) -> tuple[JournalStorage, list[str]]:
    """A journal, to write under the driver's lock; and what was repaired in it."""
    repaired = repair_journal(path)
    try:
        return JournalStorage(PatientJournal(path, create)), repaired
    except OSError:
        raise
    except Exception:
        if _replayed(path)[1] is None:
            raise
        repaired.append(_cut(path, _last_line(path, path.stat().st_size - 1), "broken"))
        return JournalStorage(PatientJournal(path, create)), repaired


def _replayed(path: Path) -> tuple[list[bytes], int | None]:
    """The whole lines of a journal, and the number of its last one if that is broken.

    Raises LedgerError if another one is.
    """
    lines = path.read_bytes().split(b"\n")[:-1]
    replay = _Lines(lines)
    try:
        JournalStorage(replay)
    except Exception as error:
        if replay.reached < len(lines):
            why = " ".join(f"{type(error).__name__}: {error}".split())[:100]
            raise LedgerError(
                f"ledger: line {replay.reached} of {path} is no record of Optuna's ({why}). Restore the file from a"
                " backup."
            ) from None
        return lines, replay.reached
    return lines, None


def repair_journal(path: Path) -> list[str]:
    """Repair what a killed driver or a fault left, under the driver's lock; returns what was repaired.

    An incomplete last line was never acknowledged, and the next write would be appended to it: it is removed, as is a
    last line that is not JSON. A stale lock of the journal would delay the next write by 30 seconds: it is removed too.
    """
    repaired = []
    for lock in [file for file in path.parent.iterdir() if file.name.startswith(path.name + ".lock")]:
        lock.unlink(missing_ok=True)
        repaired.append(f"removed the stale {lock.name}")
    if path.exists():
        size = path.stat().st_size
        whole = _last_line(path, size)
        if whole < size:
            os.truncate(path, whole)
            repaired.append(f"removed an incomplete last line of {size - whole} bytes from {path.name}")
        if whole and not _is_json(path, start := _last_line(path, whole - 1)):
            repaired.append(_cut(path, start, "broken"))
    return repaired


def _is_json(path: Path, start: int) -> bool:
    with path.open("rb") as file:
        file.seek(start)
        try:
            json.loads(file.read())
        except (ValueError, RecursionError):
            return False
    return True


def _cut(path: Path, start: int, what: str) -> str:
    """Remove what follows `start`, which is kept in a file beside the journal; says so."""
    with path.open("rb") as file:
        file.seek(start)
        content = file.read()
    number = 1
    while (kept := path.with_name(f"{path.name}.cut-{number}")).exists():
        number += 1
    with kept.open("xb") as file:
        file.write(content)
        os.fsync(file.fileno())
    os.truncate(path, start)
    return f"removed a {what} last line of {len(content)} bytes from {path.name} and kept it in {kept.name}"


def _last_line(path: Path, end: int) -> int:
    """Where the line begins that ends at `end`: after the newline before it."""
    with path.open("rb") as file:
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0
