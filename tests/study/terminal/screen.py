"""A terminal as its user sees it: a pseudo-terminal for the program, and the
screen its output makes."""

import io
import os
import pty
import re
import select

from rich.console import Console

BELL = b"\a"  # shows nothing
CODES = re.compile(r"\x1b\[(\??\d*)([A-Za-z])|\r|\n|[^\x1b\r\n]")


class Terminal:
    """Of `width` columns and `height` rows. `screen` is every line, those scrolled away first."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._keys, self._end = pty.openpty()
        file = io.TextIOWrapper(os.fdopen(self._end, "wb", buffering=0), write_through=True)
        self.console = Console(
            file=file, force_terminal=True, width=width, height=height, color_system=None
        )
        self._written = b""

    def interrupt(self) -> None:
        """Type Ctrl-C. Returns once the terminal has shown it: what is written before that
        may be dropped with it."""
        self.screen()
        os.write(self._keys, b"\x03")
        self._read_until(b"^C")

    def screen(self) -> list[str]:
        os.write(self._end, BELL)
        self._read_until(BELL)
        return screen(self._written.replace(BELL, b"").decode(), self.width, self.height)

    def _read_until(self, end: bytes) -> None:
        start = len(self._written)
        while end not in self._written[start:]:
            assert select.select([self._keys], [], [], 30)[0], f"the terminal never showed {end!r}"
            self._written += os.read(self._keys, 1 << 16)

    def close(self) -> None:
        self.console.file.close()
        os.close(self._keys)


def screen(written: str, width: int, height: int) -> list[str]:
    """As xterm shows it: a line that is full wraps when the next character comes; nothing
    above the top is reached."""
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
