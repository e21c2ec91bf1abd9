"""The paths of a trial that may be searched, and entries checked against their fields."""

from collections.abc import Iterator
from dataclasses import fields

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from search_spaces.conditions import When
from search_spaces.space import Conditional, Entry, Pin
from trainables.config import TrialConfig, nested_kind, owner_of
from trainables.fields import Settings, allowed_types, check_value
from trainables.plain import Value
from trainables.problems import FieldError

# The settings that may differ between trials of a study: groups, and single ones.
SEARCHED_GROUPS = ("method", "optimizer", "model")
SEARCHED_VALUES = ("batch_size", "data.augment")

SEARCHED = (
    f"Searchable: {', '.join([*(f'{group}.*' for group in SEARCHED_GROUPS), *SEARCHED_VALUES])}."
)
NOT_SEARCHED = "cannot be searched: it must be the same in every trial for a fair comparison"


def fits(trial: TrialConfig, path: str) -> bool:
    """Whether the path is a searchable value of this trial."""
    try:
        owner_of(trial, path)
    except FieldError:
        return False
    return is_searched(path)


def is_searched(path: str) -> bool:
    return path.partition(".")[0] in SEARCHED_GROUPS or path in SEARCHED_VALUES


def searchable_paths(settings: Settings, prefix: str = "") -> Iterator[str]:
    """Every searchable path of a trial."""
    for spec in fields(settings):
        path = f"{prefix}{spec.name}"
        if nested_kind(type(settings), spec.name):
            yield from searchable_paths(getattr(settings, spec.name), f"{path}.")
        elif is_searched(path):
            yield path


def typed(trial: TrialConfig, path: str, value: Value) -> Value:
    """The value as the path's field stores it."""
    owner, spec = owner_of(trial, path)
    found: Value = check_value(type(owner), spec, value)
    return found


def checked_entry(trial: TrialConfig, path: str, entry: Entry, where: str) -> Entry:
    """The entry with values of the field's type. Raises FieldError at `where`."""
    try:
        owner, spec = owner_of(trial, path)
    except FieldError as error:
        raise error.at(where) from None
    if not is_searched(path):
        raise FieldError(where, NOT_SEARCHED, SEARCHED)
    if isinstance(entry, Conditional):
        of = checked_entry(trial, path, entry.of, where)
        assert isinstance(of, BaseDistribution)
        return Conditional(of, _checked_when(trial, entry.when, f"{where}.when"))
    try:
        if isinstance(entry, Pin):
            return Pin(typed(trial, path, entry.value))
        if isinstance(entry, CategoricalDistribution):
            return CategoricalDistribution([typed(trial, path, one) for one in entry.choices])
    except FieldError as error:
        raise error.at(where) from None
    owner_class: type = type(owner)
    kinds = allowed_types(owner_class, spec.name)
    if not {int, float} & set(kinds):
        others = ("true", "false") if bool in kinds else ("...",)
        known = ", ".join(spec.metadata.get("choices") or others)
        raise FieldError(where, "cannot be a range", f"Write {{choices: [{known}]}}.")
    if float not in kinds and not isinstance(entry, IntDistribution):
        raise FieldError(where, "must be a whole number", "Add `int: true` to the range.")
    if int not in kinds and isinstance(entry, IntDistribution):
        raise FieldError(where, "is not a whole number", "Write `step: 1` instead of `int: true`.")
    for end in ("low", "high"):
        try:
            typed(trial, path, getattr(entry, end))
        except FieldError as error:
            raise FieldError(where, f"`{end}` {error.found}", error.mend) from None
    return entry


def _checked_when(trial: TrialConfig, when: When, where: str) -> When:
    found = {}
    for key, wanted in when.items():
        try:
            found[key] = tuple(typed(trial, key, one) for one in wanted)
        except FieldError as error:
            raise error.at(f"{where}.{key}") from None
    return found
