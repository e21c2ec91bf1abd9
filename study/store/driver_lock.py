"""One driver at a time: the lock of a study, held while it is written."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from study.schema.errors import LedgerError
from study.store.journal import journal_path


@contextmanager
def driver_lock(directory: Path, ledger: str | None = None) -> Iterator[None]:
    """Hold the lock of a study, and of a journal that other studies may share (`ledger`: a path).

    Raises LedgerError naming the holder if it is taken.
    """
    with ExitStack() as stack:
        stack.enter_context(_locked(directory / "driver.lock"))
        if ledger is None or "://" not in ledger:
            _lock_journal(stack, directory.resolve(), journal_path(directory, ledger).resolve())
        yield


def _lock_journal(stack: ExitStack, directory: Path, journal: Path) -> None:
    """Lock a journal whatever name it was given by: by symbolic links, by hard links, or as another study's own."""
    if journal.parent != directory and journal.parent.exists():  # `calstudy delete` may find it gone
        owned = journal.with_name("study.yaml").exists()
        stack.enter_context(_locked(journal.with_name("driver.lock" if owned else f"{journal.name}.driver")))
    # Only then: where locks are mandatory, such as on a Windows share, a locked journal could not be written.
    if journal.exists() and journal.stat().st_nlink > 1:
        _take(stack.enter_context(journal.open("r+")), journal, "it has another name too")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a+") as file:
        _take(file, path, path.read_text(errors="replace")[:200].strip() or "unknown")
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _take(file: IO[str], path: Path, holder: str) -> None:
    """Lock the open file. Raises LedgerError if it is taken."""
    for patience in range(10, -1, -1):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            # `driver_is_alive` of a reader holds the lock for an instant.
            if patience:
                time.sleep(0.05)
    raise LedgerError(
        f"{path.parent}: another calstudy process is running this study ({holder}). Wait for it or stop it."
    )


def driver_is_alive(directory: Path) -> bool:
    """Whether a driver is running the study now."""
    try:
        with (directory / "driver.lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
