"""Signals that come before a command can stop in order, while Python imports, or after its last
word.

Of the standard library alone: an entry point calls `handle_early_signals` before it imports
anything else.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from study.machines.end_processes import SIGNALS

TRAINING = ("run", "confirm", "reproduce")  # the commands that another try resumes
INTERRUPTED = 75
_decided = False  # whether the command's exit code is


def handle_early_signals(arguments: Sequence[str]) -> None:
    """Have a command that trains end with INTERRUPTED by a signal, until `Ending` listens itself.

    What is ignored (nohup) stays ignored. Until Python runs this, a signal has its usual effect.
    """
    command = next((word for word in arguments if not word.startswith("-")), None)
    if command not in TRAINING:
        return
    silent = "--json" in arguments or command == "reproduce"  # whose output is the table alone

    def heard(number: int, frame: object) -> None:
        if _decided:
            return
        with suppress(OSError):
            os.write(2 if silent else 1, f"{last_word(signal.Signals(number).name)}\n".encode())
        os._exit(INTERRUPTED)

    for number in SIGNALS:
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, heard)


def leave_if_interrupted(code: object) -> None:
    """End the process with INTERRUPTED, if that is its code, and not as Python would: Ray's C++
    code may crash there if it was joining a cluster, and a job is not queued again after that."""
    if code == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # it is closed
                stream.flush()
        os._exit(INTERRUPTED)


def last_word(by: str, resume: str | None = None) -> str:
    """resume: the command, once it is known that it goes on."""
    if resume is None:
        return f"stopped by {by}; run the same command again to resume."
    return f"stopped by {by}. Resume: {resume}"


def code_is_decided() -> None:
    """From now on signals are ignored: the command ends anyway, with the exit code that it has."""
    global _decided
    if not _decided:
        atexit.register(_ignore_signals)
    _decided = True


def _ignore_signals() -> None:
    """What Python handles gets its usual effect again while Python ends, which may take it
    seconds."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
