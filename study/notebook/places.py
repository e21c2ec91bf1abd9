"""Where a command's lines are shown: one after another; in a notebook, progress in one place."""

from __future__ import annotations

import sys
from html import escape
from importlib import import_module
from typing import Any


class Place:
    """Shows lines. in_place: whether one that passes is replaced by the next, in an output of the
    cell that it has to itself."""

    def __init__(self) -> None:
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        self.in_place = getattr(shell, "kernel", None) is not None
        self._shown: Any = None

    def stays(self, line: str) -> None:
        """Show a line."""
        print(line, flush=True)

    def passes(self, line: str) -> None:
        """Show a line until the next one comes."""
        if self.in_place:
            self._show(line, f"<pre>{escape(line)}</pre>")
        else:
            self.stays(line)

    def end(self) -> None:
        """No line passes any more."""
        if self._shown is not None:
            self._show("", "")

    def _show(self, text: str, html: str) -> None:
        display: Any = import_module("IPython.display").display
        bundle = {"text/plain": text, "text/html": html}
        if self._shown is None:
            self._shown = display(bundle, raw=True, display_id=True)
        else:
            self._shown.update(bundle, raw=True)
