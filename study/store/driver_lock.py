"""One driver at a time: the lock of a study, held while it is written."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from study.schema.errors import LedgerError


@contextmanager
def driver_lock(directory: Path, ledger: str | None = None) -> Iterator[None]:
    """Hold the lock of a study, and of a journal that other studies may share (`ledger`: a path).

    Raises LedgerError naming the holder if it is taken.
    """
    with ExitStack() as stack:
        stack.enter_context(_locked(directory / "driver.lock"))
        if ledger is not None and "://" not in ledger:
            stack.enter_context(_locked(Path(ledger + ".driver")))
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with _opened(path) as file:
        for patience in range(10, -1, -1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                # `driver_is_alive` of a reader holds the lock for an instant.
                if patience:
                    time.sleep(0.05)
                    continue
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise LedgerError(
                    f"{path.parent}: another calstudy process is running this study ({holder}). Wait for it or stop it."
                ) from None
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _opened(path: Path) -> TextIO:
    """The lock's file, made if missing. Raises LedgerError for a link: what it leads to would be overwritten."""
    try:
        return open(path, "a+", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise LedgerError(f"{path}: is a symbolic link, which a study's lock never is. Remove it.") from None


def driver_is_alive(directory: Path) -> bool:
    """Whether a driver is running the study now."""
    try:
        lock = directory / "driver.lock"
        with open(lock, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno != errno.ELOOP
    return False
