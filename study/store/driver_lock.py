"""The locks of a study: one driver at a time writes it, and one export at a time reads it."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TextIO

from study.schema.errors import LedgerError
from study.schema.uris import sqlite_file
from study.store.connection import is_database
from study.store.database_lock import DatabaseLock, database_lock, is_held, locks_in_database
from study.store.journal import journal_path
from study.store.journal_repair import check_journal
from trainables.files.regular import KINDS, read_regular

EXPORT = "export.lock"
PATIENCE = 600.0  # seconds that an export waits for another one
HELD = (errno.EWOULDBLOCK, errno.EACCES)  # any other error: this file system has no locks
_warned: set[Path] = set()


@contextmanager
def driver_lock(
    directory: Path, ledger: str | None = None, writes: bool = True, study: str | None = None
) -> Iterator[DatabaseLock | None]:
    """Hold the lock of a study, and the one in its ledger: of a journal elsewhere, or of the study
    in a database.

    writes: whether the ledger is written; a journal that other studies share is then locked too.
    study: its name, where the folder has another. Yields the lock in a database, for what writes
    there; None for a file. Raises LedgerError naming the holder if one is taken.
    """
    name = study or directory.name
    has_locks = is_database(ledger) and locks_in_database(ledger)
    with ExitStack() as stack:
        stack.enter_context(_locked(directory / "driver.lock", needed=not has_locks))
        if not is_database(ledger):
            if ledger is None or writes:
                journal = journal_path(directory, ledger)
                # Beside another file no lock is made.
                check_journal(journal, follow=ledger is not None)
                _lock_journal(stack, directory.resolve(), journal.resolve())
        elif has_locks:
            yield stack.enter_context(database_lock(ledger, name))
            return
        elif (file := sqlite_file(ledger)) is not None and file.parent.is_dir():
            file = file.resolve()
            stack.enter_context(_locked(file.with_name(f"{file.name}.{name}.driver")))
            _lock_other_names(stack, file)
        yield None


def _lock_journal(stack: ExitStack, directory: Path, journal: Path) -> None:
    """Lock a journal whatever name it was given by: by symbolic links, by hard links, or as another
    study's own."""
    # `calstudy delete` may find it gone.
    if journal.parent != directory and journal.parent.exists():
        record = journal.with_name("study.yaml")
        owned = journal.name == "ledger.log" and _is_of_a_study(record)
        stack.enter_context(
            _locked(journal.with_name("driver.lock" if owned else f"{journal.name}.driver"))
        )
    _lock_other_names(stack, journal)


def _is_of_a_study(record: Path) -> bool:
    """Whether a study.yaml is the record of a study; a spec may have that name too."""
    try:
        return b"recorded" in read_regular(record)
    except OSError:
        return False


def _lock_other_names(stack: ExitStack, file: Path) -> None:
    """Lock a ledger itself if it has hard links, and only then: where locks are mandatory, such as
    on a Windows share, it could not be written."""
    if file.exists() and file.stat().st_nlink > 1:
        _take(stack.enter_context(file.open("r+")), file, "it has another name too")


@contextmanager
def _locked(path: Path, needed: bool = True) -> Iterator[None]:
    """needed: raise where the file system has no locks; else warn."""
    with _opened(path) as file:
        file.seek(0)
        _take(file, path, file.read(200).strip() or "unknown", needed)
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _take(file: IO[str], path: Path, holder: str, needed: bool = True) -> None:
    """Lock the open file. Raises LedgerError if it is taken, or if there are no locks and one is
    `needed`."""
    for patience in range(10, -1, -1):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in HELD:
                return _without_locks(path.parent, error, needed)
            # `driver_is_alive` of a reader holds the lock for an instant.
            if patience:
                time.sleep(0.05)
    raise LedgerError(
        f"{path.parent}: another calstudy process is running this study ({holder})",
        "Wait for it or stop it.",
    )


def _without_locks(folder: Path, error: OSError, needed: bool) -> None:
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    problem = f"{folder}: this file system has no file locks ({name}: {error.strerror})"
    if needed:
        raise LedgerError(
            f"{problem}, so nothing keeps a second driver away",
            "Mount it with locks (Lustre: -o flock; NFS: with its lock service), or give a"
            " `ledger:` in PostgreSQL.",
        ) from None
    if folder not in _warned:
        print(
            f"warning: {problem}; the lock in the database keeps a second driver away.",
            file=sys.stderr,
        )
        _warned.add(folder)


def _opened(path: Path) -> TextIO:
    """The lock's file, made if missing. Raises LedgerError for a link: what it leads to would be
    overwritten."""
    try:
        return open(path, "a+", errors="replace", opener=without_waiting)
    except OSError as error:
        found = KINDS.get(stat.S_IFMT(os.lstat(path).st_mode)) if os.path.lexists(path) else None
        if found is None:
            raise error
        raise LedgerError(
            f"{path}: is {found}, which a study's lock never is", "Remove it."
        ) from None


def without_waiting(name: str | Path, flags: int) -> int:
    """Open a lock's file: never what a link in its place leads to, and a pipe there is not waited
    for."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def driver_is_alive(directory: Path, ledger: str | None = None) -> bool:
    """Whether a driver is running the study now, by its lock: the one in a database is seen from
    everywhere."""
    if _is_taken(directory / "driver.lock", HELD):
        return True
    return is_database(ledger) and locks_in_database(ledger) and is_held(ledger, directory.name)


def _is_taken(path: Path, errors: tuple[int, ...]) -> bool:
    """Whether another process holds a lock, which one of the errors tells. Writes nothing."""
    try:
        with open(path, opener=without_waiting) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in errors
    return False


# ---- exports -------------------------------------------------------------------------------------


@contextmanager
def export_lock(directory: Path) -> Iterator[bool]:
    """Wait for another export, then hold the study's lock; False where its folder takes none:
    read-only, or no flock.

    Raises LedgerError after PATIENCE.
    """
    deadline = time.monotonic() + PATIENCE
    try:
        file = _opened_to_export(directory / EXPORT)
    except OSError:
        yield False
        return
    try:
        yield _waited_for(file, directory, deadline)
    finally:
        os.close(file)


def _opened_to_export(path: Path) -> int:
    try:
        return without_waiting(path, os.O_RDWR | os.O_CREAT)
    except PermissionError:  # another user's: that can be locked too
        return without_waiting(path, os.O_RDONLY)


def _waited_for(file: int, directory: Path, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                found = f"another export has been at work for {PATIENCE / 60:.0f} minutes"
                mend = "End it, then export again."
                raise LedgerError(f"{directory}: {found}", mend) from None
        except OSError:
            return False
        time.sleep(0.1)


def export_is_alive(directory: Path) -> bool:
    """Whether an export of the study is at work. Writes nothing."""
    return _is_taken(directory / EXPORT, (errno.EWOULDBLOCK,))
