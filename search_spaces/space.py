"""The grammar of a search space, for the files in this folder and for a study's `search_space:`.

method.gamma: {low: 0.0, high: 5.0}                    a float
optimizer.lr: {low: 0.01, high: 0.5, log: true}        a float on a log scale
method.margin: {low: 0, high: 20, step: 0.5}           a float on a grid
batch_size: {low: 32, high: 256, int: true, log: true}
optimizer.name: {choices: [sgd, adamw]}
optimizer.momentum: {low: 0.5, high: 0.99, when: {optimizer.name: sgd}}    searched only there
optimizer.momentum: 0.9                                a plain value is fixed, not searched

A file's `defaults:` are settings to try first: values by path, and beside them `status:` and `by:`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeGuard

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from search_spaces import strict_yaml
from search_spaces.conditions import When
from trainables.plain import Plain, Value
from trainables.plugins import stems
from trainables.problems import FieldError, nearest

WHEN = "when"
RANGE_KEYS = ("low", "high", "log", "step", "int", WHEN)
FILE_KEYS = ("source", "space", "defaults")
# A default is published for a loss as we normalise it, or transferred from another loss or role.
STATUSES = ("published", "transferred", "ours")
SHARED = ("optimizer",)  # files of no method, which a study switches on by a key of its own
MOST_STEPS = 1_000_000
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Pin:
    """A value that is fixed, not searched."""

    value: Value


@dataclass(frozen=True)
class Conditional:
    """A range that is searched only where choices have one of these values."""

    of: BaseDistribution
    when: When


Entry = BaseDistribution | Pin | Conditional


def range_of(entry: BaseDistribution | Conditional) -> BaseDistribution:
    """The range alone."""
    return entry.of if isinstance(entry, Conditional) else entry


def when_of(entry: Entry) -> When:
    """Where it is searched; empty: everywhere."""
    return entry.when if isinstance(entry, Conditional) else {}


@dataclass(frozen=True)
class Default:
    """Settings to try first, one of STATUSES, and who published them."""

    values: dict[str, Value]
    status: str = "ours"
    by: str = ""

    def to_plain(self) -> dict[str, Value]:
        """The settings as written in a file."""
        plain = {**self.values, "status": self.status}
        if self.by:
            plain["by"] = self.by
        return plain


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
    return [name for name in stems(HERE, ".yaml") if name not in SHARED]


def shared_space(name: str) -> SpaceFile:
    """The file here of one of SHARED."""
    return read_space_file(HERE / f"{name}.yaml")


def find_space(name: str, folders: Iterable[Path] = ()) -> SpaceFile:
    """The method's file, here or in one of the user's `folders`; NO_FILE if there is none.

    Raises FieldError if it cannot be used, or if two folders have one.
    """
    if name not in SHARED:
        folders = (HERE, *folders)
    places = [folder / f"{name}.yaml" for folder in folders]
    found = [file for file in places if file.is_file()]
    if not found:
        return NO_FILE
    if len(found) > 1:
        mend = f"Use the study's `search_space:` instead of {found[1]}."
        raise FieldError("", "the method already has one", mend)
    return read_space_file(found[0])


def read_space_file(path: Path) -> SpaceFile:
    """Read such a file. Raises FieldError with the dotted path inside it."""
    plain = strict_yaml.read(path)
    if not isinstance(plain, dict):
        raise FieldError("", f"must be a mapping with {', '.join(FILE_KEYS)}")
    for key in plain:
        if key not in FILE_KEYS:
            raise FieldError(key, f"there is no key '{key}'", nearest(key, FILE_KEYS))
    source = plain.get("source")
    if not isinstance(source, str) or not source:
        raise FieldError("source", "must name the source of these settings in one line")
    space = plain.get("space") or {}
    if not isinstance(space, dict):
        raise FieldError("space", f"must be a mapping from path to range, got {space!r}")
    entries = {path: parse_entry(f"space.{path}", entry) for path, entry in space.items()}
    check_order(entries, "space")
    given = plain.get("defaults", [{}])
    if not isinstance(given, list):
        raise FieldError("defaults", f"must be a list of settings, got {given!r}")
    defaults = [_read_default(f"defaults[{at}]", one, entries) for at, one in enumerate(given)]
    return SpaceFile(source, entries, defaults)


def _read_default(where: str, plain: Any, entries: dict[str, Entry]) -> Default:
    if not isinstance(plain, dict):
        raise FieldError(where, f"must be a mapping from path to value, got {plain!r}")
    values = {path: value for path, value in plain.items() if path not in ("status", "by")}
    for path, value in values.items():
        place = f"{where}.{path}"
        if path not in entries:
            near = nearest(path, [*entries, "status", "by"])
            raise FieldError(place, "is not in `space`", near)
        if not contains(entries[path], value):
            valid = strict_yaml.one_line(to_plain(entries[path]))
            raise FieldError(place, f"{value!r} is not in {valid}")
    status = plain.get("status", "ours")
    if status not in STATUSES:
        raise FieldError(
            f"{where}.status", f"there is no status {status!r}", nearest(str(status), STATUSES)
        )
    by = plain.get("by", "")
    if not isinstance(by, str):
        raise FieldError(f"{where}.by", f"must be text, got {by!r}")
    if by and status == "ours":
        raise FieldError(
            f"{where}.by", "is for settings of others", "Remove it, or write their status."
        )
    if not by and status != "ours":
        raise FieldError(f"{where}.by", f"is missing: {status} by whom?")
    return Default(values, status, by)


def parse_entry(path: str, plain: Plain) -> Entry:
    """A range, or the Pin of a plain value. Raises FieldError with `path`."""
    if isinstance(plain, dict) and WHEN in plain:
        when = _parse_when(f"{path}.{WHEN}", plain[WHEN])
        entry = parse_entry(path, {key: value for key, value in plain.items() if key != WHEN})
        assert isinstance(entry, BaseDistribution)
        return Conditional(entry, when)
    if isinstance(plain, dict) and "choices" in plain:
        return _parse_choices(path, plain)
    if isinstance(plain, dict):
        return _parse_range(path, plain)
    if isinstance(plain, list):
        raise FieldError(
            path, "a list is not a range", f"Write {{choices: {strict_yaml.one_line(plain)}}}."
        )
    return Pin(_value(path, "the value", plain))


def to_plain(entry: Entry) -> Plain:
    """The plain value; `parse_entry` restores an equal entry."""
    if isinstance(entry, Pin):
        return entry.value
    if isinstance(entry, Conditional):
        range_ = to_plain(entry.of)
        assert isinstance(range_, dict)
        plain_when = {key: one[0] if len(one) == 1 else [*one] for key, one in entry.when.items()}
        return {**range_, WHEN: plain_when}
    if isinstance(entry, CategoricalDistribution):
        return {"choices": list(entry.choices)}
    assert isinstance(entry, FloatDistribution | IntDistribution)
    plain: dict[str, Value] = {"low": entry.low, "high": entry.high}
    if isinstance(entry, IntDistribution):
        plain["int"] = True
    if entry.log:
        plain["log"] = True
    elif entry.step is not None and not (isinstance(entry, IntDistribution) and entry.step == 1):
        plain["step"] = entry.step
    return plain


def contains(entry: Entry, value: Value) -> bool:
    """The entry admits the value."""
    if isinstance(entry, Pin):
        return value == entry.value
    entry = range_of(entry)
    if isinstance(entry, CategoricalDistribution):
        return value in entry.choices
    assert isinstance(entry, FloatDistribution | IntDistribution)
    if not _is_number(value) or (isinstance(entry, IntDistribution) and not isinstance(value, int)):
        return False
    return entry.low <= value <= entry.high and (
        not entry.step or _is_whole((value, entry.low), entry.step)
    )


def check_order(entries: Mapping[str, Entry], where: str) -> None:
    """Raise FieldError for a `when` on a path that is not above it."""
    above: list[str] = []
    for path, entry in entries.items():
        for key in when_of(entry):
            if key in entries and key not in above:
                found = f"{key} is written below it" if key != path else "is of the path itself"
                mend = f"Write {key} above {path}." if key != path else "Name another."
                raise FieldError(f"{where}.{path}.{WHEN}", found, mend)
        above.append(path)


def _parse_when(path: str, plain: Plain) -> dict[str, tuple[Value, ...]]:
    """Values by path: one, or a list of several."""
    if not isinstance(plain, dict) or not plain:
        mend = "Write {optimizer.name: sgd}."
        raise FieldError(path, f"must map paths to values, got {plain!r}", mend)
    found = {}
    for key, value in plain.items():
        values = value if isinstance(value, list) else [value]
        if not values:
            raise FieldError(f"{path}.{key}", "is empty", "Name a value.")
        found[key] = tuple(_value(f"{path}.{key}", "a value", one) for one in values)
    return found


def _parse_choices(path: str, plain: dict[str, Plain]) -> CategoricalDistribution:
    for key in plain:
        if key != "choices":
            raise FieldError(path, f"`choices` cannot be combined with `{key}`", f"Remove `{key}`.")
    choices = plain["choices"]
    if not isinstance(choices, list):
        raise FieldError(path, f"`choices` must be a list, got {choices!r}")
    if not choices:
        raise FieldError(path, "`choices` is empty", "Give at least two values.")
    values: list[Value] = []
    for index, choice in enumerate(choices):
        value = _value(path, f"choices[{index}]", choice)
        # Optuna compares choices by ==, so that 1, 1.0 and true are the same.
        if value in values:
            raise FieldError(path, f"`choices` has {value!r} twice", "Keep one.")
        values.append(value)
    if len(values) == 1:
        mend = f"Write the plain value {values[0]!r} to fix it."
        raise FieldError(path, "`choices` has only one value", mend)
    return CategoricalDistribution(values)


def _check_keys(path: str, plain: dict[str, Plain]) -> None:
    for key in plain:
        if key not in RANGE_KEYS:
            raise FieldError(
                path, f"a range has no key '{key}'", nearest(key, (*RANGE_KEYS, "choices"))
            )
    for key in ("low", "high"):
        if key not in plain:
            raise FieldError(path, f"`{key}` is missing", "Write a range as {low: ..., high: ...}.")
    for key in ("log", "int"):
        if not isinstance(plain.get(key, False), bool):
            raise FieldError(path, f"`{key}` must be true or false, got {plain[key]!r}")


def _parse_range(path: str, plain: dict[str, Plain]) -> FloatDistribution | IntDistribution:
    _check_keys(path, plain)
    whole = plain.get("int") is True
    log = plain.get("log") is True
    low, high = (_number(path, plain, key, whole) for key in ("low", "high"))
    step = None
    if plain.get("step") is not None:
        step = _number(path, plain, "step", whole)
    if low > high:
        raise FieldError(path, f"low {low:g} is above high {high:g}", "Swap them.")
    if low == high:
        raise FieldError(
            path, f"low and high are both {low:g}", f"Write the plain value {low:g} to fix it."
        )
    if log and low <= 0:
        raise FieldError(path, f"`log` needs low > 0, got {low:g}", "Raise low or remove `log`.")
    if step is not None:
        _check_step(path, low, high, step, log)
    if whole:
        return IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return FloatDistribution(low, high, log=log, step=step)


def _check_step(path: str, low: float, high: float, step: float, log: bool) -> None:
    if log:
        raise FieldError(path, "`log` and `step` cannot be combined", "Remove one.")
    if step <= 0:
        raise FieldError(path, f"`step` must be > 0, got {step:g}")
    if (high - low) / step > MOST_STEPS:
        raise FieldError(
            path, f"`step` {step:g} gives more than {MOST_STEPS} values", "Increase or remove it."
        )
    if not _is_whole((high, low), step):
        last = low + step * math.floor((high - low) / step)
        found = f"high {high:g} is not low plus a multiple of step {step:g}"
        raise FieldError(path, found, f"The last one below is {last:g}.")


def _is_whole(ends: tuple[float, float], step: float) -> bool:
    """The ends differ by a multiple of step, in exact decimals."""
    first, second = (Fraction(str(end)) for end in ends)
    return (first - second) % Fraction(str(step)) == 0


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(path: str, plain: dict[str, Plain], key: str, whole: bool) -> float:
    value = plain[key]
    if not _is_number(value):
        raise FieldError(path, f"`{key}` must be a finite number, got {value!r}")
    if whole and not isinstance(value, int):
        raise FieldError(path, f"`{key}` must be an integer because `int` is true, got {value!r}")
    return value if whole else float(value)


def _value(path: str, what: str, value: Any) -> Value:
    if value is not None and not isinstance(value, str | bool) and not _is_number(value):
        raise FieldError(
            path, f"{what} must be a finite number, text, true, false or null, got {value!r}"
        )
    return value
