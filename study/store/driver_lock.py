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

from study.schema.errors import LedgerError, StudyInUse
from study.store.journal import journal_path
from study.store.journal_repair import check_journal
from trainables.files.regular import KINDS, read_regular

EXPORT = "export.lock"
PATIENCE = 600.0  # seconds that an export waits for another one
HELD = (errno.EWOULDBLOCK, errno.EACCES)  # any other error: this file system has no locks
# What to do where the storage has no locks.
LEDGER_HERE = "keep the ledger on this machine's own disk (`ledger: /PATH`)"
_warned: set[Path] = set()


class _NoLocks(LedgerError):
    """A file system without file locks."""


@contextmanager
def driver_lock(
    directory: Path, ledger: str | None = None, writes: bool = True, study: str | None = None
) -> Iterator[None]:
    """Hold the lock of a study, and that of its journal if it lies elsewhere.

    writes: whether the ledger is written; a journal that other studies share is then locked too.
    study: its name, where the folder has another. Where the study's folder has no file locks, one
    beside a journal elsewhere stands for it. Raises LedgerError naming the holder if one is taken.
    """
    journal = journal_path(directory, ledger)
    # Beside another file no lock is made.
    check_journal(journal, follow=ledger is not None)
    with ExitStack() as stack:
        instead = _beside(ledger, study or directory.name)
        stack.enter_context(_locked(directory / "driver.lock", instead))
        if ledger is None or writes:
            _lock_journal(stack, directory.resolve(), journal.resolve())
        yield


def _beside(ledger: str | None, study: str) -> Path | None:
    """The lock of a study beside a journal elsewhere."""
    if ledger is None:
        return None
    journal = Path(ledger).resolve()
    return journal.with_name(f"{journal.name}.{study}.driver")


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
def _locked(path: Path, instead: Path | None = None) -> Iterator[None]:
    """instead: what to lock where the file system has no locks; None: it raises LedgerError."""
    with ExitStack() as stack:
        file = stack.enter_context(_opened(path))
        file.seek(0)
        try:
            _take(file, path, file.read(200).strip() or "unknown")
        except _NoLocks as error:
            if instead is None or not instead.parent.is_dir():
                raise
            stack.enter_context(_locked(instead))
            _warn(path.parent, error)
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _warn(folder: Path, error: LedgerError) -> None:
    """Once a process: no other machine sees the lock that is held instead."""
    if folder not in _warned:
        print(
            f"warning: {error.found}; the lock beside the ledger keeps a second driver of this"
            " machine away.",
            file=sys.stderr,
        )
        _warned.add(folder)


def _take(file: IO[str], path: Path, holder: str) -> None:
    """Lock the open file. Raises LedgerError if it is taken, or if there are no locks."""
    for patience in range(10, -1, -1):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in HELD:
                name = errno.errorcode.get(error.errno or 0, str(error.errno))
                raise _NoLocks(
                    f"{path.parent}: this file system has no file locks ({name}:"
                    f" {error.strerror}), so nothing keeps a second driver away",
                    f"Mount it with locks (Lustre: -o flock; NFS: with its lock service), or"
                    f" {LEDGER_HERE}.",
                ) from None
            # `driver_is_alive` of a reader holds the lock for an instant.
            if patience:
                time.sleep(0.05)
    raise StudyInUse(
        f"{path.parent}: another calstudy process is running this study ({holder})",
        "Wait for it or stop it.",
    )


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
    """Whether a driver is running the study now, by the lock that `driver_lock` takes."""
    locks = (directory / "driver.lock", _beside(ledger, directory.name))
    return any(_is_taken(lock) for lock in locks if lock is not None)


def _is_taken(path: Path) -> bool:
    """Whether another process holds a lock. Writes nothing."""
    try:
        with open(path, opener=without_waiting) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in HELD
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
