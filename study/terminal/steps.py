"""A status line (on a pipe: plain lines) for what a command does before it has results to show."""

from __future__ import annotations

import os
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from study.terminal.heartbeat import Heartbeat

SAID_AFTER = 1.0  # seconds: on a pipe, a step that takes less is not said
AGAIN_SECONDS = 30.0  # on a pipe, a step that takes longer is said again
SHOWN_SECONDS = 5.0  # a step that takes longer is shown with its seconds
# In the environment of a command whose output a program shows: it shows the lines that begin with
# PASSING in one place.
FOLLOWED = "CALSTUDY_FOLLOWED"
PASSING = "» "


def passing(line: str) -> str:
    """A line of progress, as it is printed on a pipe."""
    return f"{PASSING}{line}" if FOLLOWED in os.environ else line


def pause(seconds: float) -> float:
    """Seconds from one line of progress to the next: of those on a pipe, fewer where each takes the
    place of the one before."""
    return 1.0 if FOLLOWED in os.environ else seconds


class Steps:
    """Shows each step: `steps("starting Ray")`. As a context manager, it leaves nothing behind."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = self._text = ""
        self._began = 0.0  # the step, by the monotonic clock
        self._waits = False
        self.spoke = time.monotonic()  # when the last line was printed, or this begun
        self._heartbeat: Heartbeat | None = None
        self._live: Live | None = None

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.end()

    def __call__(self, step: str) -> None:
        """A step begins; the one before is over."""
        self.end()
        self._step = self._text = step
        self._waits = False
        self._began = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                refresh_per_second=2,
                get_renderable=self._view,
                transient=True,
            )
            self._live.start(refresh=True)
        else:
            self._heartbeat = Heartbeat(self._say)
            self._heartbeat.within(SAID_AFTER)

    def progress(self, done: int, total: int, noun: str = "images") -> None:
        """How many samples of the step are done. May be called often, and by any thread."""
        self._text = f"{self._step}: {total:,} {noun}, {100 * done // max(1, total)}%"

    def waiting(self, line: str | None) -> None:
        """The line says what the step waits for; None: it goes on. May be called often, and by any
        thread."""
        waited, self._waits = self._waits, line is not None
        self._text = line or self._step
        if self._waits and not waited and (heartbeat := self._heartbeat) is not None:
            heartbeat.within(0)

    def end(self) -> None:
        """The last step is over."""
        if self._heartbeat is not None:
            self._heartbeat.end()
        if self._live is not None:
            self._live.stop()
        self._heartbeat = self._live = None

    def _say(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.within(pause(AGAIN_SECONDS))
        self.spoke = time.monotonic()
        self._console.print(passing(self._line()), highlight=False, soft_wrap=True)

    def _line(self) -> str:
        """What is done, and for how long if that is long."""
        seconds = time.monotonic() - self._began
        return self._text if seconds < SHOWN_SECONDS else f"{self._text} ({seconds:.0f} s)"

    def _view(self) -> Group:
        # The cursor rests on an empty line: the terminal's ^C goes there, and goes away with it.
        return Group(Text(f"{self._line()} ...", "dim"), Text())
