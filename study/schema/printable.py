"""Text of others, safe to show: a reason, a path, a header or a server's message may hold what a terminal obeys."""

import re
from collections.abc import Mapping

# Control characters but tab and newline (C0, DEL, C1), separators of lines, characters that reorder text, and the lone
# surrogates of a file name that is not UTF-8.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with each such character written as in Python: \x1b."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_row(row: Mapping[str, object]) -> dict[str, object]:
    """A row of a CSV file, its texts `printable`: the file may be shown in a terminal."""
    return {key: printable(value) if isinstance(value, str) else value for key, value in row.items()}
