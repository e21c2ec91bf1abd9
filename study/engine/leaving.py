"""Ends what a stopped run has started. Of the standard library alone: it also runs by its path, in place of the run."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MARK = "CALSTUDY_DRIVER"  # in the environment of every process that a run starts
KILL_SECONDS = 2.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def leave_nothing(mark: str, folders: Iterable[str]) -> None:
    """End the processes with the mark and remove the folders, in KILL_SECONDS at most."""

    def leave() -> None:
        end_marked(mark)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    # Reading about a process that hangs in the kernel may hang too.
    leaving = threading.Thread(target=leave, daemon=True)
    leaving.start()
    leaving.join(KILL_SECONDS)


def end_marked(mark: str) -> None:
    """SIGKILL to every other process of this user with the mark in its environment, and to those they still start."""
    signalled = {os.getpid()}  # one that hangs in the kernel stays until that lets it go
    found = True
    while found:
        found = False
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # another user's, or it has ended
                if int(process.name) not in signalled and f"{MARK}={mark}".encode() in (
                    process / "environ"
                ).read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
                    signalled.add(int(process.name))
                    found = True
        time.sleep(0.05 if found else 0.0)


def leave_in_place_of_this(code: int, mark: str, folders: Iterable[str]) -> None:
    """`leave_nothing`, then exit with the code, as a program in place of this one: no thread of this one goes on, which
    could start another process behind our back."""
    words = ["-I", "-S", __file__, str(code), mark, *folders]
    # That program inherits this thread's mask: no further signal ends it midway.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with suppress(OSError):
        os.execv(sys.executable, [sys.executable, *words])
    os._exit(code)


if __name__ == "__main__":
    leave_nothing(sys.argv[2], sys.argv[3:])
    os._exit(int(sys.argv[1]))
