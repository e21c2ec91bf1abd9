"""`try_first:`, settings that a study tries before the published defaults: its user's own, and
those of another study's front.

An entry is {path: value, ...}, or {from: STUDY}. Once the study has begun, its study.yaml has what
was taken beside `from`, and the other study is not looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import BaseDistribution

from search_spaces.space import Pin, contains, parse_entry, to_plain
from search_spaces.strict_yaml import one_line
from study.schema.compatibility import leaves
from study.schema.errors import under
from study.schema.paths import fits, typed
from trainables.config import TrialConfig, value_at
from trainables.config import to_plain as settings_to_plain
from trainables.method import Method
from trainables.plain import Plain, Value
from trainables.problems import FieldError

FROM = "from"
SAME = "same split"
OTHER_SPLIT = "another split of the same data"
OTHER_DATA = "other data"
EXAMPLE = "[{method.gamma: 2.0}, {from: STUDY}]"
Values = dict[str, Value]


@dataclass(frozen=True)
class Front:
    """The settings of a method's front. parts: the names of its method and bases, by path."""

    parts: dict[str, Plain]
    settings: list[Values]


@dataclass(frozen=True)
class Taken:
    """A study whose front is taken. split: of its data, beside this study's; fronts: by label. Both
    are empty until it was looked at."""

    study: str
    id: str = ""
    split: str = ""
    fronts: dict[str, Front] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Plain]:
        if not self.split:
            return {FROM: self.study}
        fronts = {label: vars(one) for label, one in self.fronts.items()}
        return {FROM: self.study, "id": self.id, "split": self.split, "fronts": fronts}

    @property
    def note(self) -> str:
        """What another split of the same data means for a study that takes this front; else
        empty."""
        if self.split != OTHER_SPLIT:
            return ""
        return (
            f"the front of {self.study}, which is tried first, was selected on another split of the"
            " same data: samples on which it was selected may be in this study's validation and"
            " sealed test splits, and its values there may look better than they are."
        )

    def front_of(self, label: str, method: Method) -> list[Values]:
        """Its settings of this method: those under this label, else under another."""
        parts = parts_of(method)
        alike = {name: one for name, one in self.fronts.items() if one.parts == parts}
        found = alike.get(label) or next(iter(alike.values()), None)
        return [] if found is None else found.settings


Try = Values | Taken


def parts_of(method: Method) -> dict[str, Plain]:
    """The names of a method and its bases, by path."""
    found = leaves(settings_to_plain(method), "method.")
    return {path: value for path, value in found if path.endswith(".name")}


def read_try_first(plain: Any, where: str = "try_first") -> tuple[Try, ...]:
    """The entries of `try_first:`; a lone mapping is one entry. Raises FieldError."""
    if plain is None:
        return ()
    entries = [plain] if isinstance(plain, Mapping) else plain
    if not isinstance(entries, list):
        raise FieldError(where, f"must be a list of settings, got {plain!r}", f"Write {EXAMPLE}.")
    return tuple(_read(entry, f"{where}[{index}]") for index, entry in enumerate(entries))


def _read(plain: Any, where: str) -> Try:
    if not isinstance(plain, Mapping) or not plain:
        found = f"must map paths to values, or be {{from: STUDY}}, got {plain!r}"
        raise FieldError(where, found, f"Write {EXAMPLE}.")
    if FROM in plain:
        return _read_taken(plain, where)
    values: Values = {}
    for path, value in plain.items():
        entry = parse_entry(f"{where}.{path}", value)
        if not isinstance(entry, Pin):
            mend = "Write ranges under `search_space`."
            raise FieldError(f"{where}.{path}", "must be a plain value", mend)
        values[str(path)] = entry.value
    return values


def _read_taken(plain: Mapping[str, Any], where: str) -> Taken:
    name = plain[FROM]
    if not isinstance(name, str) or not name:
        raise FieldError(f"{where}.from", f"must be the name of a study, got {name!r}")
    if beside := [key for key in plain if key not in (FROM, "id", "split", "fronts")]:
        mend = "Write its settings as an entry of their own."
        raise FieldError(where, f"`from` stands alone, beside it is '{beside[0]}'", mend)
    if len(plain) == 1:
        return Taken(name)
    try:
        fronts = {
            str(label): Front(dict(one["parts"]), [dict(each) for each in one["settings"]])
            for label, one in plain["fronts"].items()
        }
        return Taken(name, str(plain["id"]), str(plain["split"]), fronts)
    except (KeyError, TypeError, ValueError, AttributeError):
        found = "is not what calstudy records of a study's front"
        raise FieldError(where, found, f"Write {{from: {name}}}.") from None


def try_first_to_plain(tries: Sequence[Try]) -> list[Plain]:
    return [one.to_plain() if isinstance(one, Taken) else dict(one) for one in tries]


def as_written(tries: Sequence[Try]) -> list[Plain]:
    """The entries as in the user's file: without what was taken."""
    return [{FROM: one.study} if isinstance(one, Taken) else dict(one) for one in tries]


# ---- for one method ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Searches:
    """A method as settings are tried in it. trial: with its pins."""

    label: str
    trial: TrialConfig
    distributions: Mapping[str, BaseDistribution]

    def refuses(self, setting: Mapping[str, Value]) -> FieldError | None:
        """Why the setting is none of this method, at its path: it has another value fixed, or lacks
        the path; None if it is one."""
        for path, value in setting.items():
            if path in self.distributions:
                continue
            if not fits(self.trial, path):
                return FieldError(path, f"{self.label} has no '{path}'", "Leave it out.")
            now = value_at(self.trial, path)
            if self._typed(path, value) != now:
                found = f"is not searched in {self.label}, where it is {now!r}"
                return FieldError(path, found, "Add a range to `search_space`, or leave it out.")
        return None

    def outside(self, setting: Mapping[str, Value]) -> FieldError | None:
        """Which of the setting's values is outside its range; None if none is."""
        for path, value in setting.items():
            entry = self.distributions.get(path)
            if entry is not None and not contains(entry, self._typed(path, value)):
                found = f"{value!r} is outside {one_line(to_plain(entry))} of {self.label}"
                mend = "Write a value inside it, or widen it under `search_space`."
                return FieldError(path, found, mend)
        return None

    def searched(self, setting: Mapping[str, Value]) -> Values:
        """The part of the setting that is searched."""
        found = {path: value for path, value in setting.items() if path in self.distributions}
        return {path: self._typed(path, value) for path, value in found.items()}

    def _typed(self, path: str, value: Value) -> Value:
        try:
            return typed(self.trial, path, value)
        except FieldError as error:
            raise error.at(path) from None


def own_settings(
    method: Searches,
    rest: Mapping[str, Value],
    own: Sequence[Try],
    shared: Sequence[Try],
    where: str,
) -> list[Values]:
    """What a method tries before its defaults, each once, its `own` entries (at `where`) first.

    shared: the study's, which a method passes over where it lacks a path or has another value
    fixed. rest: the values of the paths that a setting leaves out; of the others the sampler's.
    Raises FieldError for an own setting that is none of the method, and for a value outside.
    """
    found: list[Values] = []
    for place, tries in ((where, own), ("try_first", shared)):
        for index, one in enumerate(tries):
            for named in _named(method, one, f"{place}[{index}]", place == where):
                whole = dict(sorted({**rest, **named}.items()))
                if named and whole not in found:
                    found.append(whole)
    return found


def _named(method: Searches, one: Try, where: str, is_own: bool) -> list[Values]:
    """The searched values that an entry names: one setting, or those of a front."""
    if isinstance(one, Taken):
        return [method.searched(each) for each in taken_for(method, one)[0]]
    with under(where):
        if refused := method.refuses(one):
            if is_own:
                raise refused
            return []
        if outside := method.outside(one):
            raise outside
        return [method.searched(one)]


def taken_for(method: Searches, taken: Taken) -> tuple[list[Values], list[Values]]:
    """Of another study's front, the settings that the method can try, and those it cannot: values
    outside its ranges, or other than those it has fixed."""
    fits_in: list[Values] = []
    left: list[Values] = []
    for setting in taken.front_of(method.label, method.trial.method):
        try:
            refused = method.refuses(setting) or method.outside(setting)
        except FieldError:  # of a type that the path does not have
            left.append(setting)
            continue
        (left if refused else fits_in).append(setting)
    return fits_in, left
