"""Plain values, which YAML and JSON hold, and records that are written in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Self, TypeAlias

Value: TypeAlias = bool | int | float | str | None
Plain: TypeAlias = Value | Sequence["Plain"] | Mapping[str, "Plain"]


def without_numbers(plain: Plain) -> Plain:
    """The values without those of floats."""
    if isinstance(plain, Mapping):
        return {key: without_numbers(value) for key, value in plain.items()}
    return "number" if isinstance(plain, float) else plain


@dataclass(frozen=True)
class Record:
    """A frozen dataclass that is written in plain values, and read from them.

    What is None is not known, and not written, but for what is `always`.

    parts: the fields that are records, by name.
    """

    parts: ClassVar[Mapping[str, type[Record]]] = {}
    always: ClassVar[str] = ""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Plain]) -> Self:
        """The record of values that were checked; what is no field is passed over."""
        found: dict[str, Plain | Record] = {}
        for each in fields(cls):
            value = plain.get(each.name)
            if each.name in cls.parts and isinstance(value, Mapping):
                found[each.name] = cls.parts[each.name].from_plain(value)
            elif value is not None:
                found[each.name] = value
        return cls(**found)

    def to_plain(self) -> dict[str, Plain]:
        return {
            key: value.to_plain() if isinstance(value, Record) else value
            for key, value in vars(self).items()
            if value is not None or key == self.always
        }
