"""Where a followed command's lines are shown: in a notebook, on a terminal, or on a pipe."""

from __future__ import annotations

import shutil
import sys
from html import escape
from importlib import import_module
from typing import Any, Protocol

from rich.cells import set_cell_size


class Place(Protocol):
    """Shows lines. in_place: whether one that passes is replaced by the next."""

    in_place: bool

    def stays(self, line: str) -> None:
        """Show a line."""

    def passes(self, line: str) -> None:
        """Show a line until the next one comes."""

    def end(self) -> None:
        """No line passes any more."""


class OnPipe:
    """One line after another."""

    in_place = False

    def stays(self, line: str) -> None:
        print(line, flush=True)

    def passes(self, line: str) -> None:
        self.stays(line)

    def end(self) -> None:
        """Nothing is to be removed."""


class OnTerminal:
    """The last line of the terminal is the one that passes."""

    in_place = True

    def stays(self, line: str) -> None:
        print(f"\r\033[2K{line}", flush=True)

    def passes(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\033[2K{set_cell_size(line, width).rstrip()}", end="", flush=True)

    def end(self) -> None:
        print("\r\033[2K", end="", flush=True)


class InNotebook:
    """The line that passes has an output of its own in the cell."""

    in_place = True

    def __init__(self) -> None:
        self._shown: Any = None

    def stays(self, line: str) -> None:
        print(line, flush=True)

    def passes(self, line: str) -> None:
        self._show(line, f"<pre>{escape(line)}</pre>")

    def end(self) -> None:
        if self._shown is not None:
            self._show("", "")

    def _show(self, text: str, html: str) -> None:
        display: Any = import_module("IPython.display").display
        bundle = {"text/plain": text, "text/html": html}
        if self._shown is None:
            self._shown = display(bundle, raw=True, display_id=True)
        else:
            self._shown.update(bundle, raw=True)


def place_here() -> Place:
    """Where this process shows something to its user."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        return InNotebook()
    return OnTerminal() if sys.stdout.isatty() else OnPipe()
