"""The layout of every table: nothing in it is ever cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from study.schema.printable import printable

GAP = "  "
NARROWEST = 20  # a column of text wraps only if it keeps this width
COLUMNS_SHOWN = 20  # of a table of data


class Table:
    """A table without lines; columns named `>...` are right-aligned, and their values never wrap.

    Where the width does not suffice, text wraps between words; where that does not suffice either,
    each row becomes a block with one line per column.
    """

    def __init__(self, *columns: str, title: str | None = None) -> None:
        self._right = [column.startswith(">") for column in columns]
        self._header = [Text(column.lstrip(">"), style="bold") for column in columns]
        self._title = None if title is None else Text(title, style="bold")
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        row = [Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells]
        self._rows.append(row)

    def __len__(self) -> int:
        return len(self._rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        if self._title is not None:
            yield from self._title.wrap(console, options.max_width)
        widths = self._widths(options.max_width)
        if widths is None:
            for row in self._rows:
                yield from self._block(console, options.max_width, row)
        else:
            for row in (self._header, *self._rows):
                yield from self._lines(console, widths, row)

    def _widths(self, available: int) -> list[int] | None:
        """The widths of the columns; None if the table does not fit."""
        columns = list(zip(self._header, *self._rows, strict=True))
        whole = [max(cell.cell_len for cell in column) for column in columns]
        least = [self._least(*each) for each in zip(self._right, columns, strict=True)]
        spare = available - len(GAP) * (len(columns) - 1) - sum(least)
        if spare < 0:
            return None
        # What is left over is shared; what one column does not need, others get.
        needs = sorted((whole[column] - least[column], column) for column in range(len(columns)))
        for done, (need, column) in enumerate(needs):
            share = min(need, spare // (len(columns) - done))
            least[column] += share
            spare -= share
        return least

    @staticmethod
    def _least(right: bool, column: tuple[Text, ...]) -> int:
        """The least width of a column: whole values, whole words."""
        header, *cells = column
        if right:
            return max(_longest_word(header), *(cell.cell_len for cell in cells), 0)
        words = (min(cell.cell_len, max(_longest_word(cell), NARROWEST)) for cell in cells)
        return max(_longest_word(header), *words, 0)

    def _lines(self, console: Console, widths: list[int], row: list[Text]) -> Iterator[Text]:
        wrapped = [
            [cell] if cell.cell_len <= width else list(cell.wrap(console, width))
            for cell, width in zip(row, widths, strict=True)
        ]
        for cells in itertools.zip_longest(*wrapped):
            line = Text()
            for right, width, cell in zip(self._right, widths, cells, strict=True):
                part = cell or Text()
                part.rstrip()  # the space it was wrapped at
                pad = " " * (width - part.cell_len)
                if right:
                    line.append(pad).append(part).append(GAP)
                else:
                    line.append(part).append(pad + GAP)
            line.rstrip()
            yield line

    def _block(self, console: Console, available: int, row: list[Text]) -> Iterator[Text]:
        """The row's name, then its other columns, indented; empty ones are left out."""
        name, *cells = row
        yield from Text.assemble(name, style="bold").wrap(console, available)
        width = max(header.cell_len for header in self._header[1:])
        for header, cell in zip(self._header[1:], cells, strict=True):
            if not cell:
                continue
            start = GAP + header.plain + " " * (width - header.cell_len) + GAP
            for number, part in enumerate(cell.wrap(console, max(1, available - len(start)))):
                part.rstrip()
                yield Text.assemble((start, "dim") if number == 0 else " " * len(start), part)


def _longest_word(text: Text) -> int:
    return max(map(cell_len, text.plain.split()), default=0)


def columns_text(columns: Sequence[str]) -> str:
    """The first of them; `--json` lists all."""
    shown = ", ".join(columns[:COLUMNS_SHOWN])
    left = len(columns) - COLUMNS_SHOWN
    return f"{shown}, and {left:,} more" if left > 0 else shown
