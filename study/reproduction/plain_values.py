"""Parts of a table file, from plain values: each checked where it enters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from study.schema.errors import under
from trainables.fields import Settings
from trainables.plain import Plain
from trainables.problems import FieldError, nearest

Record = TypeVar("Record", bound=Settings)


def record_of(cls: type[Record], plain: object, where: str, **own: Plain) -> Record:
    """The record of a mapping. own: what stands elsewhere in the file."""
    if not isinstance(plain, Mapping):
        raise FieldError(where, f"must be a mapping of settings, got {plain!r}")
    with under(where):
        for key in plain:
            if key in own:
                raise FieldError(key, "is given by its place", "Remove it.")
            cls.field_named(key)
        for spec in fields(cls):
            if spec.default is MISSING and spec.name not in {*plain, *own}:
                raise FieldError(spec.name, f"is missing; {cls.__name__} requires it")
        values = {key: _as_names(key, value) for key, value in plain.items()}
        return cls(**values, **own)


def _as_names(key: str, value: Any) -> Any:
    """A list as the names that it must hold."""
    if not isinstance(value, list):
        return value
    for name in value:
        if not isinstance(name, str):
            raise FieldError(key, f"must be a list of names, but contains {name!r}")
    return tuple(value)


def check_name(where: str, name: str, known: Iterable[str], kind: str) -> None:
    names = list(known)
    if name not in names:
        raise FieldError(where, f"there is no {kind} '{name}'", nearest(str(name), names))


def mapping_of(plain: Mapping[str, Any], key: str, least: int = 0) -> Mapping[str, Any]:
    return mapping_at(key, plain.get(key), least)


def mapping_at(where: str, value: Any, least: int = 0) -> Mapping[str, Any]:
    # A key with all its lines commented out reads as null.
    value = {} if value is None else value
    if not isinstance(value, Mapping) or len(value) < least:
        raise FieldError(where, f"must map names to settings, got {value!r}")
    return value


def list_of(plain: Mapping[str, Any], key: str, least: int = 0) -> list[Any]:
    value = plain.get(key)
    value = [] if value is None else value
    if not isinstance(value, list) or len(value) < least:
        raise FieldError(key, f"must be a list{' of one or more' * least}, got {value!r}")
    return value


def words_of(plain: Mapping[str, Any], key: str) -> str:
    value = plain[key]
    if not isinstance(value, str) or not value:
        raise FieldError(key, f"must be text, got {value!r}")
    return value


def number_at(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FieldError(where, f"must be a number, got {value!r}", "Leave out an empty cell.")
    return float(value)


def number_of(plain: Mapping[str, Any], key: str, kind: type) -> Any:
    """A number above 0; None if it is absent."""
    value = plain.get(key)
    if value is None:
        return None
    found = number_at(key, value)
    if found <= 0 or (kind is int and not isinstance(value, int)):
        words = "a whole number of 1 or more" if kind is int else "above 0"
        raise FieldError(key, f"must be {words}, got {value!r}")
    return kind(value)
