"""The grammar of a search space, for the files in this folder and for a study's `search_space:`.

method.gamma: {low: 0.0, high: 5.0}                    a float
optimizer.lr: {low: 0.01, high: 0.5, log: true}        a float on a log scale
method.margin: {low: 0, high: 20, step: 0.5}           a float on a grid
batch_size: {low: 32, high: 256, int: true, log: true}
optimizer.name: {choices: [sgd, adamw]}
optimizer.momentum: 0.9                                a plain value is fixed, not searched

A file's `defaults:` are settings to try first: values by path, and beside them `status:` and `by:`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from search_spaces import strict_yaml

Value = None | bool | int | float | str

RANGE_KEYS = ("low", "high", "log", "step", "int")
FILE_KEYS = ("source", "space", "defaults")
# Of a default. Published: for this loss as we normalise it. Transferred: for another normalisation, loss or role.
STATUSES = ("published", "transferred", "ours")
SHARED = ("optimizer",)  # files of no method, which a study switches on by a key of its own
MOST_STEPS = 1_000_000


class SpaceError(ValueError):
    """An invalid entry: `path` is its dotted path, `problem` what was found and the fix."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(path, problem)

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


@dataclass(frozen=True)
class Pin:
    """A value that is fixed, not searched."""

    value: Value


Entry = BaseDistribution | Pin


@dataclass(frozen=True)
class Default:
    """Settings to try first, one of STATUSES, and who published them."""

    values: dict[str, Value]
    status: str = "ours"
    by: str = ""

    def to_plain(self) -> dict[str, Value]:
        """As written in a file."""
        return {**self.values, "status": self.status, **({"by": self.by} if self.by else {})}


@dataclass(frozen=True)
class SpaceFile:
    """A method's search space: its source, the ranges, and the settings to try first."""

    source: str
    space: dict[str, Entry]
    defaults: list[Default]


# A method without a file: no ranges; its own settings are tried first.
NO_FILE = SpaceFile("", {}, [Default({})])


def names() -> list[str]:
    """The methods with a file here, sorted."""
    return sorted(
        file.stem for file in Path(__file__).parent.glob("*.yaml") if file.stem not in SHARED
    )


def shared_space(name: str) -> SpaceFile:
    """The file here of one of SHARED."""
    return read_space_file(Path(__file__).parent / f"{name}.yaml")


def find_space(name: str, folders: Iterable[Path] = ()) -> SpaceFile:
    """The file of the method of that name, here or in one of the user's `folders`; NO_FILE if there is none.

    Raises SpaceError if it cannot be used, or if two folders have one.
    """
    here = [] if name in SHARED else [Path(__file__).parent]
    found = [folder / f"{name}.yaml" for folder in (*here, *folders)]
    found = [file for file in found if file.is_file()]
    if len(found) > 1:
        raise SpaceError(
            "",
            f"the method already has one; use the study's `search_space:` instead of {found[1]}.",
        )
    return read_space_file(found[0]) if found else NO_FILE


def read_space_file(path: Path) -> SpaceFile:
    """Read such a file. Raises SpaceError with the dotted path inside it."""
    try:
        plain = strict_yaml.read(path)
    except strict_yaml.YamlError as error:
        raise SpaceError(error.path, error.problem) from None
    if not isinstance(plain, dict):
        raise SpaceError("", f"must be a mapping with {', '.join(FILE_KEYS)}.")
    for key in plain:
        if key not in FILE_KEYS:
            raise SpaceError(key, f"there is no key '{key}'.{_nearest(key, FILE_KEYS)}")
    source, space, defaults = (
        plain.get("source"),
        plain.get("space") or {},
        plain.get("defaults", [{}]),
    )
    if not isinstance(source, str) or not source:
        raise SpaceError("source", "must name the source of these settings in one line.")
    if not isinstance(space, dict):
        raise SpaceError("space", f"must be a mapping from path to range, got {space!r}.")
    entries = {path: parse_entry(f"space.{path}", entry) for path, entry in space.items()}
    if not isinstance(defaults, list):
        raise SpaceError("defaults", f"must be a list of settings, got {defaults!r}.")
    return SpaceFile(
        source,
        entries,
        [_read_default(f"defaults[{at}]", one, entries) for at, one in enumerate(defaults)],
    )


def _read_default(where: str, plain: Any, entries: dict[str, Entry]) -> Default:
    if not isinstance(plain, dict):
        raise SpaceError(where, f"must be a mapping from path to value, got {plain!r}.")
    values = {path: value for path, value in plain.items() if path not in ("status", "by")}
    for path, value in values.items():
        if path not in entries:
            raise SpaceError(
                f"{where}.{path}", f"is not in `space`.{_nearest(path, [*entries, 'status', 'by'])}"
            )
        if not contains(entries[path], value):
            raise SpaceError(
                f"{where}.{path}",
                f"{value!r} is not in {strict_yaml.one_line(to_plain(entries[path]))}.",
            )
    status, by = plain.get("status", "ours"), plain.get("by", "")
    if status not in STATUSES:
        raise SpaceError(
            f"{where}.status", f"there is no status {status!r}.{_nearest(str(status), STATUSES)}"
        )
    if not isinstance(by, str):
        raise SpaceError(f"{where}.by", f"must be text, got {by!r}.")
    if (status == "ours") == bool(by):
        problem = (
            "is for settings of others; remove it, or write their status."
            if by
            else f"is missing: {status} by whom?"
        )
        raise SpaceError(f"{where}.by", problem)
    return Default(values, status, by)


def parse_entry(path: str, plain: Any) -> Entry:
    """The distribution of a range, or the Pin of a plain value. Raises SpaceError with `path`."""
    if isinstance(plain, dict):
        return _parse_choices(path, plain) if "choices" in plain else _parse_range(path, plain)
    if isinstance(plain, list):
        raise SpaceError(
            path, f"a list is not a range; write {{choices: {strict_yaml.one_line(plain)}}}."
        )
    return Pin(_value(path, "the value", plain))


def to_plain(entry: Entry) -> Any:
    """The plain value; `parse_entry` restores an equal entry."""
    if isinstance(entry, Pin):
        return entry.value
    if isinstance(entry, CategoricalDistribution):
        return {"choices": list(entry.choices)}
    assert isinstance(entry, FloatDistribution | IntDistribution)
    plain: dict[str, Any] = {"low": entry.low, "high": entry.high}
    if isinstance(entry, IntDistribution):
        plain["int"] = True
    if entry.log:
        plain["log"] = True
    elif entry.step is not None and not (isinstance(entry, IntDistribution) and entry.step == 1):
        plain["step"] = entry.step
    return plain


def contains(entry: Entry, value: Value) -> bool:
    """Whether the entry admits the value."""
    if isinstance(entry, Pin):
        return value == entry.value
    if isinstance(entry, CategoricalDistribution):
        return value in entry.choices
    assert isinstance(entry, FloatDistribution | IntDistribution)
    if not _is_number(value) or (isinstance(entry, IntDistribution) and not isinstance(value, int)):
        return False
    assert isinstance(value, int | float)
    return entry.low <= value <= entry.high and (
        not entry.step or _is_whole((value, entry.low), entry.step)
    )


def _parse_choices(path: str, plain: dict[str, Any]) -> CategoricalDistribution:
    for key in plain:
        if key != "choices":
            raise SpaceError(path, f"`choices` cannot be combined with `{key}`; remove `{key}`.")
    choices = plain["choices"]
    if not isinstance(choices, list):
        raise SpaceError(path, f"`choices` must be a list, got {choices!r}.")
    if not choices:
        raise SpaceError(path, "`choices` is empty; give at least two values.")
    for index, choice in enumerate(choices):
        _value(path, f"choices[{index}]", choice)
        # Optuna compares choices by ==, so that 1, 1.0 and true are the same.
        if choice in choices[:index]:
            raise SpaceError(path, f"`choices` has {choice!r} twice; keep one.")
    if len(choices) == 1:
        raise SpaceError(
            path, f"`choices` has only one value; write the plain value {choices[0]!r} to fix it."
        )
    return CategoricalDistribution(choices)


def _parse_range(path: str, plain: dict[str, Any]) -> FloatDistribution | IntDistribution:
    for key in plain:
        if key not in RANGE_KEYS:
            raise SpaceError(
                path, f"a range has no key '{key}'.{_nearest(key, (*RANGE_KEYS, 'choices'))}"
            )
    for key in ("low", "high"):
        if key not in plain:
            raise SpaceError(path, f"`{key}` is missing; write a range as {{low: ..., high: ...}}.")
    for key in ("log", "int"):
        if not isinstance(plain.get(key, False), bool):
            raise SpaceError(path, f"`{key}` must be true or false, got {plain[key]!r}.")
    whole, log = plain.get("int", False), plain.get("log", False)
    low, high = _number(path, plain, "low", whole), _number(path, plain, "high", whole)
    step = _number(path, plain, "step", whole) if plain.get("step") is not None else None
    if low > high:
        raise SpaceError(path, f"low {low:g} is above high {high:g}; swap them.")
    if low == high:
        raise SpaceError(
            path, f"low and high are both {low:g}; write the plain value {low:g} to fix it."
        )
    if log and low <= 0:
        raise SpaceError(path, f"`log` needs low > 0, got {low:g}; raise low or remove `log`.")
    if step is not None:
        _check_step(path, low, high, step, log)
    if whole:
        return IntDistribution(int(low), int(high), log=log, step=1 if step is None else int(step))
    return FloatDistribution(low, high, log=log, step=step)


def _check_step(path: str, low: float, high: float, step: float, log: bool) -> None:
    if log:
        raise SpaceError(path, "`log` and `step` cannot be combined; remove one.")
    if step <= 0:
        raise SpaceError(path, f"`step` must be > 0, got {step:g}.")
    if (high - low) / step > MOST_STEPS:
        raise SpaceError(
            path, f"`step` {step:g} gives more than {MOST_STEPS} values; increase or remove it."
        )
    if not _is_whole((high, low), step):
        last = low + step * math.floor((high - low) / step)
        raise SpaceError(
            path,
            f"high {high:g} is not low plus a multiple of step {step:g}; the last one below is {last:g}.",
        )


def _is_whole(ends: tuple[float, float], step: float) -> bool:
    """Whether the ends differ by a multiple of step, in exact decimals."""
    first, second = (Fraction(str(end)) for end in ends)
    return (first - second) % Fraction(str(step)) == 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(path: str, plain: dict[str, Any], key: str, whole: bool) -> float:
    value = plain[key]
    if not _is_number(value):
        raise SpaceError(path, f"`{key}` must be a finite number, got {value!r}.")
    if whole and not isinstance(value, int):
        raise SpaceError(path, f"`{key}` must be an integer because `int` is true, got {value!r}.")
    return value if whole else float(value)


def _value(path: str, what: str, value: Any) -> Value:
    if value is not None and not isinstance(value, str | bool) and not _is_number(value):
        raise SpaceError(
            path, f"{what} must be a finite number, text, true, false or null, got {value!r}."
        )
    result: Value = value
    return result


def _nearest(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return (
        f" Did you mean '{close[0]}'?" if close else f" Valid values: {', '.join(known) or 'none'}."
    )
