"""A status line (on a pipe: plain lines) for what a command does before it has results to show."""

from __future__ import annotations

import threading
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

SAID_AFTER = 1.0  # seconds: on a pipe, a step that takes less is not said
LINE_SECONDS = 10.0  # from one line of progress to the next, at least


class Steps:
    """Shows each step: `steps("starting Ray")`. As a context manager, it leaves nothing behind."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = self._text = ""
        self._timer: threading.Timer | None = None
        self._printed = 0.0  # when the last line was, by the monotonic clock
        self._live: Live | None = None

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.end()

    def __call__(self, step: str) -> None:
        """A step begins; the one before is over."""
        self.end()
        self._step = self._text = step
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                refresh_per_second=2,
                get_renderable=self._view,
                transient=True,
            )
            self._live.start(refresh=True)
        else:
            self._timer = threading.Timer(SAID_AFTER, self._print)
            self._timer.daemon = True
            self._timer.start()

    def progress(self, done: int, total: int) -> None:
        """How many images of the step are done. May be called often, and by any thread."""
        self._text = f"{self._step}: {total:,} images, {100 * done // max(1, total)}%"
        due = self._printed and time.monotonic() - self._printed >= LINE_SECONDS
        if due and self._live is None:
            self._print()

    def end(self) -> None:
        """The last step is over."""
        if self._timer is not None:
            self._timer.cancel()
        if self._live is not None:
            self._live.stop()
        self._timer = self._live = None
        self._printed = 0.0

    def _print(self) -> None:
        self._printed = time.monotonic()
        self._console.print(self._text, highlight=False, soft_wrap=True)

    def _view(self) -> Group:
        # The cursor rests on an empty line: the terminal's ^C goes there, and goes away with it.
        return Group(Text(f"{self._text} ...", "dim"), Text())
