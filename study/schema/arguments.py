"""A study's keys as arguments in Python: plain values as YAML has them, and which lines differ."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from search_spaces import strict_yaml
from study.schema.compatibility import leaves
from trainables.plain import Plain
from trainables.problems import FieldError

# Of an object in place of a name.
FILES = {
    "methods": "Write a method's name, its class, or a function of logits and labels.",
    "model": "Write a network's name, or its class.",
    "objectives": "Write a metric's name, or a function of logits and labels.",
}
# Where a study lies, and the copy of its code, are no part of what its keys say.
NOT_COMPARED = ("storage", "extensions")
ABSENT = "absent"


def plain_keys(keys: Mapping[Any, Any]) -> dict[str, Plain]:
    """The keys as a file has them: tuples are lists, paths are text, NumPy's numbers are numbers.

    Raises FieldError for a value that no file could hold.
    """
    return {key: _plain(value, str(key)) for key, value in keys.items()}


def _plain(value: Any, path: str) -> Plain:
    if isinstance(value, Mapping):
        return {key: _plain(each, f"{path}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{path}[{index}]") for index, each in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if getattr(value, "shape", None) == ():  # of NumPy
        value = value.item()
    for kind in (bool, int, float, str):  # a bool is an int
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    if path == "optimizer":
        found = f"must be a dict of settings, got {_called(value)}"
        raise FieldError(path, found, 'Write {"name": "adam", "lr": 0.001}.')
    mend = FILES.get(re.split(r"[.[]", path)[0])
    if mend is not None and (callable(value) or type(value).__module__ != "builtins"):
        raise FieldError(path, f"must be a name, got {_called(value)}", mend)
    raise FieldError(
        path,
        f"must be a value that YAML can hold, got {type(value).__name__}",
        "Write a number, a text, a list or a dict.",
    )


def _called(value: Any) -> str:
    """`the class MyLoss`, or `a MyNet`."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def differing_lines(was: Mapping[str, Plain], now: Mapping[str, Plain]) -> tuple[str, ...]:
    """`epochs: was 20, is 30` for each key in which two studies differ; both with every key."""
    found = differing(was, now)
    return tuple(f"{key}: was {before}, is {after}" for key, (before, after) in found.items())


def differing(one: Mapping[str, Plain], other: Mapping[str, Plain]) -> dict[str, tuple[str, str]]:
    """The values of both for each key in which two studies differ, as YAML has them, or absent."""
    first = _lines(one)
    second = _lines(other)
    return {
        key: (first.get(key, ABSENT), second.get(key, ABSENT))
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key)
    }


def _lines(plain: Mapping[str, Any]) -> dict[str, str]:
    by_label = {entry["label"]: entry for entry in plain["methods"]}
    kept = {key: value for key, value in plain.items() if key not in NOT_COMPARED}
    return {
        path: strict_yaml.one_line(value)
        for path, value in leaves({**kept, "methods": by_label})
        if not path.endswith(".label")
    }
