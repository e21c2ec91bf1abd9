"""What may be searched: its paths in a trial, and entries checked against their fields."""

from collections.abc import Iterator
from dataclasses import fields

from optuna.distributions import CategoricalDistribution, IntDistribution

from search_spaces.space import Entry, Pin, Value, to_plain
from trainables.config import TrialConfig, nested_kind, owner_of
from trainables.fields import FieldError, Settings, allowed_types, check_value

# What may differ between trials of a study: groups of settings, and single settings.
SEARCHED_GROUPS = ("method", "optimizer", "model")
SEARCHED_VALUES = ("batch_size", "data.augment")

SEARCHED = (
    f"Searchable: {', '.join([*(f'{group}.*' for group in SEARCHED_GROUPS), *SEARCHED_VALUES])}."
)
NOT_SEARCHED = (
    f"cannot be searched: it must be the same in every trial for a fair comparison. {SEARCHED}"
)


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
        raise FieldError(where, error.problem) from None
    if not is_searched(path):
        raise FieldError(where, NOT_SEARCHED)
    try:
        if isinstance(entry, Pin):
            return Pin(typed(trial, path, entry.value))
        if isinstance(entry, CategoricalDistribution):
            return CategoricalDistribution([typed(trial, path, choice) for choice in entry.choices])
    except FieldError as error:
        raise FieldError(where, error.problem) from None
    owner_class: type = type(owner)
    kinds = allowed_types(owner_class, spec.name)
    plain = to_plain(entry)
    if not {int, float} & set(kinds):
        choices = spec.metadata.get("choices") or ((True, False) if bool in kinds else ())
        known = (
            ", ".join(
                str(choice).lower() if isinstance(choice, bool) else choice for choice in choices
            )
            or "..."
        )
        raise FieldError(where, f"cannot be a range; write {{choices: [{known}]}}.")
    if float not in kinds and not isinstance(entry, IntDistribution):
        raise FieldError(where, "must be a whole number; add `int: true` to the range.")
    if int not in kinds and isinstance(entry, IntDistribution):
        raise FieldError(where, "is not a whole number; write `step: 1` instead of `int: true`.")
    for end in ("low", "high"):
        try:
            typed(trial, path, plain[end])
        except FieldError as error:
            raise FieldError(where, f"`{end}` {error.problem}") from None
    return entry
