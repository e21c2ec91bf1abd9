"""Errors of specs and ledgers, in a module of their own so that reading a study imports little."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from trainables.problems import FieldError, UserError, nearest


class SpecError(UserError):
    """A study cannot be run: the file, the field, what was found and the mend; `differences`
    stand below them, one a line."""

    def __init__(
        self,
        file_name: str,
        path: str,
        found: str,
        mend: str = "",
        *,
        differences: tuple[str, ...] = (),
    ) -> None:
        super().__init__(found, mend)
        self.file_name = file_name
        self.path = path
        self.differences = differences

    @classmethod
    def of(cls, file_name: str, error: FieldError) -> SpecError:
        """The error of a field in a file."""
        return cls(file_name, error.path, error.found, error.mend)

    def __str__(self) -> str:
        first = ": ".join(part for part in (self.file_name, self.path, self.problem) if part)
        return "\n  ".join([" ".join(first.split()), *self.differences])


class LedgerError(UserError):
    """The ledger cannot be used as requested; the message gives the reason and the fix."""


class TryAgain(UserError):
    """The machine, the cluster or a server is not ready: try again later. Exit code 75."""


class StudyInUse(LedgerError, TryAgain):
    """Another process runs the study."""


@contextmanager
def located(file_name: str, path: str = "") -> Iterator[None]:
    """FieldErrors raised inside become SpecErrors of the file, under the path."""
    try:
        yield
    except FieldError as error:
        raise SpecError.of(file_name, error.under(path)) from None


@contextmanager
def under(path: str) -> Iterator[None]:
    """Prefix the path of FieldErrors raised inside."""
    try:
        yield
    except FieldError as error:
        raise error.under(path) from None


def check_keys(plain: object, noun: str, keys: Collection[str], required: Sequence[str]) -> None:
    """Raise FieldError unless a file's plain values are a mapping of these keys, with all that are
    required. noun: what the file holds."""
    needed = f"A {noun} needs {', '.join(required[:-1])} and {required[-1]}."
    if plain is None:
        raise FieldError("", "is empty", needed)
    if not isinstance(plain, Mapping):
        raise FieldError("", f"must be a mapping of keys, got {type(plain).__name__}", needed)
    for key in plain:
        if key not in keys:
            raise FieldError(str(key), f"there is no key '{key}'", nearest(str(key), keys))
    for key in required:
        if key not in plain:
            raise FieldError(key, "is missing", needed)
