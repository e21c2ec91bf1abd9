"""Text of others, safe to show: a terminal obeys what a path or a server's message may hold."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from trainables.plain import Value

# A spreadsheet takes a cell that begins with one of these for a formula.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
# Control characters but tab and newline (C0, DEL, C1), separators of lines, characters that reorder
# text, and the lone surrogates of a file name that is not UTF-8.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""The text with each such character written as in Python: \x1b."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def csv_cell(value: Value) -> Value:
    """A cell of a CSV file, `printable`; a quote begins what a spreadsheet may run as a formula.

    Numbers stay numbers. OWASP, "CSV Injection": cells that begin with = + - @, a tab, a new line.
    """
    if not isinstance(value, str):
        return value
    quote = "'" if value.startswith(FORMULAS) else ""
    return quote + printable(value)


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Value]]) -> str:
    """A CSV file with a header; None is an empty cell."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(map(csv_cell, columns))
    writer.writerows(map(csv_cell, map(row.get, columns)) for row in rows)
    return file.getvalue()
