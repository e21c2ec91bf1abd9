"""Errors the user can fix: what was found, and the mend, joined here alone."""

import copyreg
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

SIMILAR = 0.6  # of difflib's ratio; below it, `pruner` is near `record` and `csv` near `svhn`
MOST_LISTED = 30  # valid values in a message; of more it names the first few
FEW = 10


class UserError(Exception):
    """An error the user can fix; a command prints only its text, and so does a notebook.

    found: what is wrong, without a full stop. mend: what to do, in whole sentences; empty
    where `found` says it ("must be a number, got 'x'").
    """

    def __init__(self, found: str, mend: str = "") -> None:
        self.found = found
        self.mend = mend
        super().__init__(found, mend)

    @property
    def problem(self) -> str:
        """What was found and the mend, as the user reads them."""
        return joined(self.found, self.mend)

    def __str__(self) -> str:
        return self.problem

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [str(self)]

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), vars(self)  # type: ignore[attr-defined]


class FieldError(UserError, ValueError):
    """An invalid value. path: the field, as `method.gamma`; empty where there is only one."""

    def __init__(self, path: str, found: str, mend: str = "") -> None:
        super().__init__(found, mend)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem

    def under(self, prefix: str) -> "FieldError":
        """The error one level up: `gamma` under `method` is `method.gamma`."""
        return self.at(".".join(part for part in (prefix, self.path) if part))

    def at(self, path: str) -> "FieldError":
        """The same of another field."""
        return FieldError(path, self.found, self.mend)


def joined(found: str, mend: str = "") -> str:
    """`found. Mend.`"""
    first = found if found.endswith((".", "?", "!")) else f"{found}."
    return f"{first} {mend}" if mend else first


def nearest(word: str, known: Iterable[str], listed: str = "") -> str:
    """The mend of a misspelt word: "Did you mean 'gamma'?", by difflib, letters, a path's end or
    a name's beginning (`acc`); else the valid values, of many the first few and where all are
    `listed`."""
    names = list(known)
    close = [
        *get_close_matches(word, names, n=1, cutoff=SIMILAR),
        *(name for name in names if sorted(name) == sorted(word) or name.endswith(f".{word}")),
        *(name for name in names if len(word) > 1 and name.startswith(word)),
    ]
    if close:
        return f"Did you mean '{close[0]}'?"
    if len(names) <= MOST_LISTED:
        return f"Valid values: {', '.join(names) or 'none'}."
    shown = f"Valid values: {', '.join(names[:FEW])} and {len(names) - FEW:,} more"
    return f"{shown}; {listed}." if listed else f"{shown}."
