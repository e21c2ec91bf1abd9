"""One export of a study at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from study.schema.errors import LedgerError
from study.store.driver_lock import without_waiting

NAME = "export.lock"
PATIENCE = 600.0  # seconds


@contextmanager
def export_lock(directory: Path) -> Iterator[bool]:
    """Wait for another export, then hold the study's lock; False where its folder takes none:
    read-only, or no flock.

    Raises LedgerError after PATIENCE.
    """
    deadline = time.monotonic() + PATIENCE
    try:
        file = _opened(directory / NAME)
    except OSError:
        yield False
        return
    try:
        yield _locked(file, directory, deadline)
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    try:
        return without_waiting(path, os.O_RDWR | os.O_CREAT)
    except PermissionError:  # another user's: that can be locked too
        return without_waiting(path, os.O_RDONLY)


def _locked(file: int, directory: Path, deadline: float) -> bool:
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
    try:
        with open(directory / NAME, opener=without_waiting) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is none, or no lock on this disk
        return False
    return False
