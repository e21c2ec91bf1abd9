"""A command in a process of its own, followed to its end from any thread.

Nothing of Ray and no handler of a signal comes into the process that follows. The command is in a
session of its own: a notebook interrupts all processes of its group, and a command that is asked
twice ends at once. If the process that follows dies, its outputs are closed, which ends a run in
order.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from study.notebook.places import Place
from study.schema.errors import TryAgain
from study.schema.own_code import environment
from study.schema.printable import printable
from study.store.command_line import FROM_PYTHON
from study.terminal.console import INTERRUPTED, MISTAKE
from study.terminal.steps import FOLLOWED, PASSING
from trainables.problems import UserError

# A kernel sets them for its own output: colours, and figures in the notebook.
NOT_FOR_A_PIPE = (
    "FORCE_COLOR",
    "CLICOLOR_FORCE",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
    "MPLBACKEND",
)
LAST_SECONDS = 12.0  # after a second interruption, until it is killed
LOOK_SECONDS = 0.5  # between two looks whether it has ended, with outputs that others keep open


class Refused(UserError):
    """The user's mistake (exit code 2), in the command's words."""

    def __str__(self) -> str:
        return self.found


class CommandFailed(RuntimeError):
    """A command that failed (exit code 1)."""


class Followed:
    """What a command has said: its output, and its last message on stderr."""

    def __init__(self, place: Place, echo: bool) -> None:
        """echo: whether the lines of its output that stay are shown."""
        self._place = place
        self._echo = echo
        self.output: list[str] = []
        self.message: list[str] = []
        self.unread = 2  # outputs that have not ended

    def take(self, line: str, is_output: bool) -> None:
        if line.startswith(PASSING):
            self._place.passes(line.removeprefix(PASSING))
        elif is_output:
            self.output.append(line)
            if self._echo:
                self._place.stays(line)
        elif line.startswith("  ") and self.message:
            self.message.append(line)
        elif line:
            # The last one may be why it ends.
            self.say_message()
            self.message = [line]

    def say_message(self) -> None:
        """Show the last message on stderr: it was no reason to end."""
        for line in self.message:
            print(line, file=sys.stderr, flush=True)


Line = tuple[str, bool] | None  # its text, and whether it is output; the end of an output
OURS = (sys.executable, "-m", "study.cli")


def run_command(
    words: Sequence[str],
    place: Place,
    again: str,
    echo: bool = True,
    program: Sequence[str] = OURS,
) -> tuple[str, ...]:
    """The output of a command, in lines. again: what to call to repeat it, such as `run()`.

    An interruption asks the command to stop and waits until it has; a second one ends it within
    LAST_SECONDS, a third now. Then raises KeyboardInterrupt. Raises UserError for exit code 2,
    TryAgain for 75 and where a signal ended it, else CommandFailed, with the command's message.
    """
    variables = {name: text for name, text in environment().items() if name not in NOT_FOR_A_PIPE}
    variables |= {"PYTHONIOENCODING": "utf-8", FROM_PYTHON: "1"}
    if place.in_place:
        variables[FOLLOWED] = "1"
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*program, *words]
    process = subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, start_new_session=True, **pipes
    )
    lines: SimpleQueue[Line] = SimpleQueue()
    for file in (process.stdout, process.stderr):
        Thread(target=_read, args=(file, file is process.stdout, lines), daemon=True).start()
    followed = Followed(place, echo)
    try:
        interrupts = _follow(process, lines, followed)
    finally:
        process.send_signal(signal.SIGINT)  # unless it has ended: its lines could not be shown
        place.end()
    if interrupts:
        followed.say_message()
        raise KeyboardInterrupt(f"calstudy {words[0]} was stopped. Run it again: {again}")
    if process.returncode == 0:
        followed.say_message()
        return tuple(followed.output)
    raise _problem(words[0], process.returncode, followed, again)


def _follow(process: subprocess.Popen[bytes], lines: SimpleQueue[Line], followed: Followed) -> int:
    """Show its lines until it has ended; returns how often that was interrupted."""
    interrupts = 0
    kill_at = math.inf
    while True:
        try:
            if _has_ended(process, lines, followed, kill_at):
                return interrupts
        except KeyboardInterrupt:
            interrupts += 1
            kill_at = (math.inf, time.monotonic() + LAST_SECONDS, 0.0)[min(interrupts, 3) - 1]
            if interrupts < 3:
                process.send_signal(signal.SIGINT)


def _has_ended(
    process: subprocess.Popen[bytes], lines: SimpleQueue[Line], followed: Followed, kill_at: float
) -> bool:
    """Whether it has ended and its outputs were shown; else shows a line, or waits for one."""
    if not followed.unread and process.poll() is not None:
        return True
    if time.monotonic() >= kill_at:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        line = lines.get(timeout=LOOK_SECONDS if followed.unread else LOOK_SECONDS / 10)
    except Empty:
        return process.poll() is not None  # another process keeps its outputs open
    if line is None:
        followed.unread -= 1
    else:
        followed.take(*line)
    return False


def _read(file: IO[bytes], is_output: bool, lines: SimpleQueue[Line]) -> None:
    """Read an output to its end, which is a None."""
    with file:
        for line in file:
            text = line.decode(errors="replace").removesuffix("\n")
            lines.put((printable(text), is_output))
    lines.put(None)


def _problem(name: str, code: int, said: Followed, again: str) -> Exception:
    message = "\n".join(said.message)
    if code == MISTAKE:
        return Refused(message or "\n".join(said.output))
    if code == INTERRUPTED:
        # It may have said why and then shown what there is.
        why = (line for line in reversed(said.output) if re.search("again|stopped|resume", line))
        return TryAgain(message or next(why, "not finished"), f"Run it again: {again}")
    if code < 0:
        by = signal.Signals(-code).name
        return TryAgain(f"calstudy {name} was ended by {by}", f"Run it again: {again}")
    return CommandFailed(f"calstudy {name} failed: {message or 'its output says why'}")
