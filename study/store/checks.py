"""What a value must be that is read from a file: people edit files, and disks change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Predicate = Callable[[Any], bool]


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def is_number(value: Any) -> bool:
    return isinstance(value, float) or is_int(value)


def is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def or_none(check: Predicate) -> Predicate:
    return lambda value: value is None or check(value)


def each(check: Predicate) -> Predicate:
    """A list whose items pass."""
    return lambda value: isinstance(value, list) and all(map(check, value))


def of(check: Predicate) -> Predicate:
    """A mapping whose values pass."""
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def having(**checks: Predicate) -> Predicate:
    """A mapping that has these keys, and their values pass."""

    def passes(value: Any) -> bool:
        return isinstance(value, dict) and all(
            key in value and check(value[key]) for key, check in checks.items()
        )

    return passes


def with_only(**checks: Predicate) -> Predicate:
    """A mapping that has these keys alone, and their values pass."""
    has = having(**checks)
    return lambda value: has(value) and len(value) == len(checks)
