"""`try_first:`, a user's own settings, which a study tries before the published defaults.

An entry is {path: value, ...}, as `calstudy pareto --json` prints `params`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import BaseDistribution

from search_spaces.conditions import Whens, in_words, searched_in
from search_spaces.space import Pin, contains, parse_entry, to_plain
from search_spaces.strict_yaml import one_line
from study.schema.errors import under
from study.schema.paths import fits, typed
from trainables.config import TrialConfig, value_at
from trainables.plain import Value
from trainables.problems import FieldError

FROM = "from"  # another study, in an earlier version
EXAMPLE = "[{method.gamma: 2.0}]"
Values = dict[str, Value]


def read_try_first(plain: Any, where: str = "try_first") -> tuple[Values, ...]:
    """The entries of `try_first:`; a lone mapping is one entry. Raises FieldError."""
    if plain is None:
        return ()
    entries = [plain] if isinstance(plain, Mapping) else plain
    if not isinstance(entries, list):
        raise FieldError(where, f"must be a list of settings, got {plain!r}", f"Write {EXAMPLE}.")
    return tuple(_read(entry, f"{where}[{index}]") for index, entry in enumerate(entries))


def _read(plain: Any, where: str) -> Values:
    if not isinstance(plain, Mapping) or not plain:
        raise FieldError(where, f"must map paths to values, got {plain!r}", f"Write {EXAMPLE}.")
    if FROM in plain:
        raise FieldError(
            f"{where}.{FROM}",
            f"the front of another study is not taken, got {plain[FROM]!r}",
            "Write its settings: the `params` that `calstudy pareto STUDY --json` prints.",
        )
    values: Values = {}
    for path, value in plain.items():
        entry = parse_entry(f"{where}.{path}", value)
        if not isinstance(entry, Pin):
            mend = "Write ranges under `search_space`."
            raise FieldError(f"{where}.{path}", "must be a plain value", mend)
        values[str(path)] = entry.value
    return values


# ---- for one method ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Searches:
    """A method as settings are tried in it. trial: with its pins. whens: as of its Space."""

    label: str
    trial: TrialConfig
    distributions: Mapping[str, BaseDistribution]
    whens: Whens = field(default_factory=dict)

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

    def held(self, setting: Mapping[str, Value]) -> Values:
        """The setting, sorted, of the paths that are searched where its values are taken."""
        found = searched_in(setting, self.distributions, self.whens)
        return {path: setting[path] for path in sorted(found) if path in setting}

    def _typed(self, path: str, value: Value) -> Value:
        try:
            return typed(self.trial, path, value)
        except FieldError as error:
            raise error.at(path) from None


def own_settings(
    method: Searches,
    rest: Mapping[str, Value],
    own: Sequence[Values],
    shared: Sequence[Values],
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
            with under(f"{place}[{index}]"):
                named = _named(method, one, place == where)
                whole = method.held({**rest, **named})
                for path in named:
                    if path not in whole:
                        only = in_words(method.whens[path])
                        mend = "Leave it out, or name that too."
                        raise FieldError(path, f"is searched only where {only}", mend)
            if named and whole not in found:
                found.append(whole)
    return found


def _named(method: Searches, one: Mapping[str, Value], is_own: bool) -> Values:
    """The searched values that an entry names; none where the method passes over it."""
    if refused := method.refuses(one):
        if is_own:
            raise refused
        return {}
    if outside := method.outside(one):
        raise outside
    return method.searched(one)
