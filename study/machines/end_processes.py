"""Ends what a stopped run has started. Of the standard library alone: it also runs by its path, in
place of the run."""

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
KILL_SECONDS = 4.0
READ_SECONDS = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_all(mark: str, folders: Iterable[str]) -> None:
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
    """SIGKILL to every other process of this user with the mark in its environment, and to those
    they still start."""
    known = {os.getpid()}
    late: list[threading.Thread] = []
    while _signal_others(mark, known, late):
        time.sleep(0.05)
    for reader in late:  # on a busy machine it may still find one
        reader.join()


def _signal_others(mark: str, known: set[int], late: list[threading.Thread]) -> bool:
    """Look at all processes that are not known, at once; whether one was signalled.

    Those that were signalled are known from then on, and those of which the system says nothing for
    READ_SECONDS, such as one that is just ending: they must not save the others. Who still reads
    about those is `late`.
    """
    signalled = []

    def look(number: int) -> None:
        with suppress(OSError):  # another user's, or it has ended
            words = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
            if f"{MARK}={mark}".encode() in words:
                os.kill(number, signal.SIGKILL)
                signalled.append(number)

    numbers = {int(process.name) for process in Path("/proc").glob("[0-9]*")} - known
    readers = {
        number: threading.Thread(target=look, args=(number,), daemon=True) for number in numbers
    }
    for reader in readers.values():
        reader.start()
    until = time.monotonic() + READ_SECONDS
    for number, reader in readers.items():
        reader.join(max(0.0, until - time.monotonic()))
        if reader.is_alive():
            known.add(number)
            late.append(reader)
    known.update(signalled)
    return bool(signalled)


def end_all_in_place_of_this(code: int, mark: str, folders: Iterable[str]) -> None:
    """`end_all`, then exit with the code, as a program in place of this one: no thread of
    this one goes on, which could start another process behind our back."""
    words = ["-I", "-S", __file__, str(code), mark, *folders]
    # That program inherits this thread's mask: no further signal ends it midway.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    with suppress(OSError):
        os.execv(sys.executable, [sys.executable, *words])
    os._exit(code)


if __name__ == "__main__":
    end_all(sys.argv[2], sys.argv[3:])
    os._exit(int(sys.argv[1]))
