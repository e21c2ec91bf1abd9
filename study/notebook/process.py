"""A command in a process of its own, followed to its end from any thread.

Nothing of Ray and no handler of a signal comes into the process that follows. The command is in a
session of its own: a notebook interrupts all processes of its group, and a command that is asked
twice ends at once. If the process that follows dies, its outputs are closed, which ends a run in
order.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from study.notebook.places import Place
from study.schema.errors import TryAgain
from study.schema.own_code import environment
from study.schema.printable import printable
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


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code, its output, and its last message on stderr."""

    code: int
    output: tuple[str, ...]
    message: str


class Command:
    """A command that runs."""

    def __init__(self, words: Sequence[str], place: Place, program: Sequence[str]) -> None:
        variables = {
            name: value for name, value in environment().items() if name not in NOT_FOR_A_PIPE
        }
        variables["PYTHONIOENCODING"] = "utf-8"
        if place.in_place:
            variables[FOLLOWED] = "1"
        self._place = place
        self._process = subprocess.Popen(
            [*program, *words],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._unread = {self._process.stdout.fileno(): b"", self._process.stderr.fileno(): b""}
        self._output_is = self._process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        for file in self._unread:
            os.set_blocking(file, False)
            self._selector.register(file, selectors.EVENT_READ)
        self._lines: deque[tuple[int, str]] = deque()  # read, and not shown yet
        self._output: list[str] = []
        self._message: list[str] = []
        self._interrupts = 0
        self._kill_at: float | None = None

    def follow(self, echo: bool) -> None:
        """Show its lines until it has ended. May be called again after a KeyboardInterrupt.

        echo: also those of its output that stay.
        """
        while self._selector.get_map():
            for key, _ in self._selector.select(LOOK_SECONDS):
                self._read(key.fd)
            self._show(echo)
            if self._process.poll() is not None:
                for key in [*self._selector.get_map().values()]:
                    self._read(key.fd)
                break
            self._kill_if_due()
        self._show(echo)
        while self._process.poll() is None:
            self._kill_if_due()
            time.sleep(LOOK_SECONDS / 10)

    def interrupt(self) -> None:
        """Ask it to stop in order; the second time, to end at once; the third time it is killed."""
        self._interrupts += 1
        if self._interrupts > 2:
            self._kill_at = 0.0
            return
        if self._interrupts == 2:
            self._kill_at = time.monotonic() + LAST_SECONDS
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    @property
    def interrupted(self) -> bool:
        return self._interrupts > 0

    def close(self) -> None:
        """Nobody reads it any more, which ends it in order if it still runs."""
        self._selector.close()
        for file in (self._process.stdout, self._process.stderr):
            if file is not None:
                file.close()

    @property
    def ended(self) -> Ended:
        return Ended(self._process.returncode, tuple(self._output), "\n".join(self._message))

    def say_message(self) -> None:
        """Show the last message on stderr: it was no reason to end."""
        for line in self._message:
            print(line, file=sys.stderr, flush=True)

    def _kill_if_due(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self, file: int) -> None:
        try:
            while found := os.read(file, 2**16):
                *lines, self._unread[file] = (self._unread[file] + found).split(b"\n")
                self._lines.extend((file, _text(line)) for line in lines)
        except BlockingIOError:
            return
        self._selector.unregister(file)
        if rest := self._unread[file]:
            self._lines.append((file, _text(rest)))

    def _show(self, echo: bool) -> None:
        while self._lines:
            self._take(*self._lines.popleft(), echo)

    def _take(self, file: int, line: str, echo: bool) -> None:
        if line.startswith(PASSING):
            self._place.passes(line.removeprefix(PASSING))
        elif file == self._output_is:
            self._output.append(line)
            if echo:
                self._place.stays(line)
        elif line.startswith("  ") and self._message:
            self._message.append(line)
        elif line:
            # The last one may be why it ends.
            self.say_message()
            self._message = [line]


def _text(line: bytes) -> str:
    return printable(line.decode(errors="replace"))


OURS = (sys.executable, "-m", "study.cli")


def run_command(
    words: Sequence[str],
    place: Place,
    again: str,
    echo: bool = True,
    program: Sequence[str] = OURS,
) -> tuple[str, ...]:
    """The output of a command, in lines. again: what to call to repeat it, such as `run()`.

    An interruption asks the command to stop and waits until it has; a second one ends it now. Then
    raises KeyboardInterrupt. Raises UserError for exit code 2, TryAgain for 75 and where a signal
    ended it, else CommandFailed, with the command's message.
    """
    command = Command(words, place, program)
    try:
        while True:
            try:
                command.follow(echo)
                break
            except KeyboardInterrupt:
                command.interrupt()
    finally:
        command.close()
        place.end()
    ended = command.ended
    if command.interrupted:
        command.say_message()
        raise KeyboardInterrupt(f"calstudy {words[0]} was stopped. Run it again: {again}")
    if ended.code == 0:
        command.say_message()
        return ended.output
    raise _problem(words[0], ended, again)


def _problem(name: str, ended: Ended, again: str) -> Exception:
    if ended.code == MISTAKE:
        return Refused(ended.message or "\n".join(ended.output))
    if ended.code == INTERRUPTED:
        # It may have said why and then shown what there is.
        said = (line for line in reversed(ended.output) if re.search("again|stopped|resume", line))
        return TryAgain(ended.message or next(said, "not finished"), f"Run it again: {again}")
    if ended.code < 0:
        by = signal.Signals(-ended.code).name
        return TryAgain(f"calstudy {name} was ended by {by}", f"Run it again: {again}")
    return CommandFailed(f"calstudy {name} failed: {ended.message or 'its output says why'}")
