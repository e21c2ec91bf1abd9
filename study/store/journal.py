"""The ledger as a file: Optuna's journal, one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalFileSymlinkLock

from study.schema.errors import LedgerError
from study.store.journal_repair import check_journal, cut_last_line, most_bytes, repair_journal
from trainables.files.atomic import append, retry_until_space
from trainables.files.regular import open_regular, read_regular

Log = dict[str, Any]  # a record of Optuna's
TAIL = 200  # bytes at the end of a journal by which it is known again


class LedgerLost(OSError):
    """The ledger went away or was replaced while it was in use."""


class PatientJournal(JournalFileBackend):
    """Optuna's journal on a disk that may fill up, or go away.

    An append writes all its lines, or none and waits for space. It goes to the file that was
    opened, which it never creates anew. create: make the file if there is none. follow: whether it
    may be a symbolic link.
    """

    def __init__(self, path: Path, create: bool = True, follow: bool = True) -> None:
        self._journal = path
        self._own_lock = JournalFileSymlinkLock(str(path))
        self._follow = follow
        if create:
            no_link = 0 if follow else os.O_NOFOLLOW
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | no_link, 0o666))
        elif not path.exists():
            raise self._lost("is missing")
        super().__init__(str(path), self._own_lock)
        self._known = self._tail()

    def append_logs(self, logs: list[Log]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)

        def write() -> None:
            self._check_same()  # before the lock, which is a file too
            self._own_lock.acquire()
            try:
                append(
                    self._journal, lines.encode(), durable=True, follow=self._follow, create=False
                )
                self._known = self._tail()
            finally:
                self._own_lock.release()

        retry_until_space(write)

    def read_logs(self, log_number_from: int) -> Generator[Log, None, None]:
        try:
            yield from super().read_logs(log_number_from)
        except FileNotFoundError:
            raise self._lost("is missing") from None

    def _tail(self, end: int | None = None) -> tuple[int, bytes]:
        """Where the file ends, and its last bytes before that."""
        with open_regular(self._journal, follow=self._follow) as file:
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
        return LedgerLost(
            f"the ledger {self._journal} {problem}. Mount or restore it, then run the command"
            " again."
        )


class _Lines(BaseJournalBackend):
    """The lines of a journal that was read, counted as Optuna applies them."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self.reached = 0

    def read_logs(self, log_number_from: int) -> Generator[Log, None, None]:
        for line in self._lines[log_number_from:]:
            self.reached += 1
            yield json.loads(line)

    def append_logs(self, logs: list[Log]) -> None:
        raise AssertionError("these lines are read only")


def journal_path(directory: Path, ledger: str | None) -> Path:
    return Path(ledger) if ledger is not None else directory / "ledger.log"


def read_journal(path: Path, follow: bool = True) -> JournalStorage:
    """A journal, to read. Raises LedgerError naming a line that is no record of Optuna's.

    If that is the last line it is left out, as an incomplete one is: the next driver removes it.
    """
    check_journal(path, follow)
    try:
        return JournalStorage(PatientJournal(path, create=False, follow=follow))
    except LedgerLost:
        raise
    except Exception:  # whatever a line makes Optuna raise
        lines, is_broken = _replayed(path, follow)
        return JournalStorage(_Lines(lines[:-1] if is_broken else lines))


def open_journal(path: Path, create: bool, follow: bool = True) -> tuple[JournalStorage, list[str]]:
    """A journal, to write under the driver's lock; and what was repaired in it."""
    repaired = repair_journal(path, follow)
    try:
        return JournalStorage(PatientJournal(path, create, follow)), repaired
    except LedgerLost:
        raise
    except Exception:
        if not _replayed(path, follow)[1]:
            raise
        repaired.append(cut_last_line(path, follow))
        return JournalStorage(PatientJournal(path, create, follow)), repaired


def _replayed(path: Path, follow: bool) -> tuple[list[bytes], bool]:
    """The whole lines of a journal, and whether its last one is broken.

    Raises LedgerError if another one is.
    """
    lines = read_regular(path, most_bytes(), follow).split(b"\n")[:-1]
    replay = _Lines(lines)
    try:
        JournalStorage(replay)
    except Exception:
        if replay.reached < len(lines):
            found = f"line {replay.reached} of {path} is no record of Optuna's"
            raise LedgerError(f"ledger: {found}", "Restore the file from a backup.") from None
        return lines, True
    return lines, False
