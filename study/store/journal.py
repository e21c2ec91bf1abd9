"""The ledger as a file: Optuna's journal, one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend

from study.schema.errors import LedgerError
from study.store.journal_repair import check_journal, cut, keep
from trainables.files.atomic import append, retry_until_space
from trainables.files.regular import open_regular

Log = dict[str, Any]  # a record of Optuna's
TAIL = 200  # bytes at the end of a journal by which it is known again


class LedgerLost(OSError):
    """The ledger went away or was replaced while it was in use."""


class PatientJournal(BaseJournalBackend):
    """Optuna's journal on a disk that may fill up, or go away.

    An append writes all its lines, or none and waits for space. It goes to the file that was
    opened, which it never creates anew. No lock of Optuna's is taken: the driver's keeps others
    away. create: make the file if there is none. follow: whether it may be a symbolic link. most:
    the lines that are read; None: all that are whole.
    """

    def __init__(
        self, path: Path, create: bool = True, follow: bool = True, most: int | None = None
    ) -> None:
        self.path = path
        self.lines = 0  # that were read
        self.start = self.end = 0  # of the last of them, in bytes
        self._follow = follow
        self._most = most
        if create:
            no_link = 0 if follow else os.O_NOFOLLOW
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | no_link, 0o666))
        elif not path.exists():
            raise self._lost("is missing")
        self._known = self._tail()

    def append_logs(self, logs: list[Log]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)

        def write() -> None:
            self._check_same()
            append(self.path, lines.encode(), durable=True, follow=self._follow, create=False)
            self._known = self._tail()

        retry_until_space(write, self.path)

    def read_logs(self, log_number_from: int) -> Generator[Log, None, None]:
        if log_number_from < self.lines:
            self.lines = self.end = 0
        try:
            file = open_regular(self.path, follow=self._follow)
        except FileNotFoundError:
            raise self._lost("is missing") from None
        with file:
            file.seek(self.end)
            for line in file:
                if not line.endswith(b"\n") or self.lines == self._most:
                    return
                self.lines += 1
                self.start, self.end = self.end, self.end + len(line)
                if self.lines > log_number_from:
                    yield json.loads(line)

    def is_at_last_line(self) -> bool:
        """Whether no whole line follows that which was read last."""
        with open_regular(self.path, follow=self._follow) as file:
            file.seek(self.end)
            return not file.readline().endswith(b"\n")

    def repair(self, is_broken: bool) -> list[str]:
        """Remove what follows the last line that was read, and that line too if it is broken;
        returns what was repaired.

        An incomplete line was never acknowledged, and the next write would be appended to it. A
        broken one is kept in a file beside the journal.
        """
        repaired = []
        name = self.path.name
        if torn := cut(self.path, self.end, self._follow):
            repaired.append(f"removed an incomplete last line of {torn} bytes from {name}")
        if is_broken:
            kept = keep(self.path, self.start, self._follow)
            size = cut(self.path, self.start, self._follow)
            found = f"a broken last line of {size} bytes from {name}"
            repaired.append(f"removed {found} and kept it in {kept.name}")
        self._known = self._tail()
        return repaired

    def _tail(self, end: int | None = None) -> tuple[int, bytes]:
        """Where the file ends, and its last bytes before that."""
        with open_regular(self.path, follow=self._follow) as file:
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
            f"the ledger {self.path} {problem}. Mount or restore it, then run the command again."
        )


def journal_path(directory: Path, ledger: str | None) -> Path:
    return Path(ledger) if ledger is not None else directory / "ledger.log"


def read_journal(path: Path, follow: bool = True) -> JournalStorage:
    """A journal, to read. Raises LedgerError naming a line that is no record of Optuna's.

    If that is the last line it is left out, as an incomplete one is: the next driver removes it.
    """
    check_journal(path, follow)
    journal = PatientJournal(path, create=False, follow=follow)
    storage = _replayed(journal)
    if storage is None:
        whole = PatientJournal(path, create=False, follow=follow, most=journal.lines - 1)
        storage = JournalStorage(whole)
    return storage


def open_journal(path: Path, create: bool, follow: bool = True) -> tuple[JournalStorage, list[str]]:
    """A journal, to write under the driver's lock; and what was repaired in it."""
    check_journal(path, follow)
    journal = PatientJournal(path, create, follow)
    storage = _replayed(journal)
    repaired = journal.repair(is_broken=storage is None)
    if storage is None:
        storage = JournalStorage(PatientJournal(path, create, follow))
    return storage, repaired


def _replayed(journal: PatientJournal) -> JournalStorage | None:
    """What the lines of a journal make; None if the last one is broken.

    Raises LedgerError if another one is.
    """
    try:
        return JournalStorage(journal)
    except (OSError, MemoryError):
        raise
    except Exception:  # whatever a line makes Optuna raise
        if journal.is_at_last_line():
            return None
        found = f"line {journal.lines} of {journal.path} is no record of Optuna's"
        raise LedgerError(f"ledger: {found}", "Restore the file from a backup.") from None
