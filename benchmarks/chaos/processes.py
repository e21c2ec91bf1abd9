"""The processes of a round: those that carry its mark in their environment, and no others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "CALSTUDY_CHAOS"
ACTOR = "ray::CalibrationTrainable"


def heed_signals() -> None:
    """Have the programs started from here end by SIGINT and SIGHUP, which a background
    job or nohup ignores."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def marked(mark: str, words: str = "") -> list[int]:
    """The living processes that were started, by whomever, with the mark; those with
    `words` in their command."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                process = Path(entry.path)
                if wanted in (process / "environ").read_bytes().split(
                    b"\0"
                ) and words in command_line(int(entry.name)):
                    found.append(int(entry.name))
    return sorted(found)


def command_line(pid: int) -> str:
    """As `ps` shows it; empty where the process has ended."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return ""


def stopped(pid: int) -> bool:
    """Whether every thread of a process stands still after SIGSTOP, or it has ended."""
    try:
        threads = [(thread / "stat").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return True
    return all(thread.rpartition(")")[2].split()[0] in "TZX" for thread in threads)


def end_marked(mark: str) -> None:
    """SIGKILL to every process of the mark until there is none."""
    while pids := marked(mark):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def wait_for(true: Callable[[], Any], seconds: float, pause: float = 0.1) -> Any:
    """What `true` gives once it gives something; else its last answer after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (answer := true()) and time.monotonic() < deadline:
        time.sleep(pause)
    return answer
