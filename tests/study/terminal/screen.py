"""A terminal as its user sees it: a pseudo-terminal for the program, and the screen its output makes."""

import io
import os
import pty
import re
import select

from rich.console import Console

CODES = re.compile(r"\x1b\[(\??\d*)([A-Za-z])|\r|\n|[^\x1b\r\n]")


class Terminal:
    """Of `width` columns and `height` rows. `press` types keys; `screen` is every line, those scrolled away first."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._keys, self._end = pty.openpty()
        file = io.TextIOWrapper(os.fdopen(self._end, "wb", buffering=0), write_through=True)
        self.console = Console(file=file, force_terminal=True, width=width, height=height, color_system=None)
        self._written = ""

    def press(self, keys: bytes) -> None:
        self.screen()
        os.write(self._keys, keys)

    def screen(self) -> list[str]:
        while select.select([self._keys], [], [], 0.2)[0]:
            self._written += os.read(self._keys, 1 << 16).decode()
        return screen(self._written, self.width, self.height)

    def close(self) -> None:
        self.console.file.close()
        os.close(self._keys)


def screen(written: str, width: int, height: int) -> list[str]:
    """As xterm shows it: a line that is full wraps when the next character comes; nothing above the top is reached."""
    lines, row, column = [""], 0, 0
    for found in CODES.finditer(written):
        text, (count, command) = found.group(), found.groups()
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
        elif command == "A":
            row = max(row - int(count or 1), len(lines) - height, 0)
        elif command == "K":
            assert count == "2"
            lines[row] = ""
        elif command is None:
            if column == width:
                row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
            lines[row] = lines[row].ljust(column)[:column] + text + lines[row][column + 1 :]
            column += 1
        lines += [""] * (row + 1 - len(lines))
    return lines
