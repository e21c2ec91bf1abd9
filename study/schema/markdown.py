"""Text of others in Markdown, where it stands as text: it is no markup there."""

import re

from study.schema.printable import printable

# What Markdown, or HTML in it, could take as markup: `_` only where it is no part of a word, and
# what makes a link of a bare address.
MARKUP = re.compile(
    r"[\\`*<>|~&]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE
)


class Markdown(str):
    """A text that is Markdown as it stands."""


def as_text(value: object) -> Markdown:
    """A value as a line of Markdown that shows it and does nothing else."""
    if isinstance(value, Markdown):
        return value
    return Markdown(MARKUP.sub(r"\\\g<0>", _line(str(value))))


def as_code(value: str) -> Markdown:
    """A text as a code span, whatever backticks it has."""
    line = _line(value)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return Markdown(f"{fence}{space}{line}{space}{fence}")


def as_sentence(ours: str) -> Markdown:
    """A sentence of ours, in which code stands between single backticks. One in which others do,
    as of a file's name, has no code."""
    parts = ours.split("`")
    if len(parts) % 2 == 0 or "" in parts[1::2]:
        return as_text(ours)
    return Markdown(
        "".join(as_code(part) if at % 2 else as_text(part) for at, part in enumerate(parts))
    )


def _line(text: str) -> str:
    return printable(" ".join(text.splitlines()))
