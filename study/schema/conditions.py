"""Where a method's ranges are searched: as its study says, and where a setting has an effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optuna.distributions import BaseDistribution, CategoricalDistribution

from search_spaces.conditions import Ranges, When, in_order
from search_spaces.space import Conditional, Entry, range_of, to_plain, when_of
from search_spaces.strict_yaml import one_line
from study.schema.recommendations import effective, inert_paths
from trainables.config import TrialConfig, value_at
from trainables.problems import FieldError, nearest


def without_effect(trial: TrialConfig, ranges: Ranges) -> dict[str, str]:
    """{path: the setting that leaves it without effect}."""
    of_optimizer = inert_paths(trial.optimizer, ranges, "optimizer")
    return {
        **inert_paths(trial.method, ranges),
        **{path: f"optimizer.{why}" for path, why in of_optimizer.items()},
    }


def conditioned(
    trial: TrialConfig,
    entries: Mapping[str, BaseDistribution | Conditional],
    kept: Mapping[str, Entry],
) -> tuple[dict[str, BaseDistribution], dict[str, When]]:
    """The ranges that the method searches, in the order in which they are asked, and where.

    Without those that have no effect: in any trial, or in those of other choices. trial: with its
    pins. kept: what a study keeps as it recorded it. Raises FieldError.
    """
    ranges = {path: range_of(entry) for path, entry in entries.items()}
    inert = without_effect(trial, ranges).keys() - kept.keys()
    ranges = {path: of for path, of in ranges.items() if path not in inert}
    whens = {path: {**when_of(entries[path])} for path in ranges}
    optimizer = effective(trial.optimizer, ranges, "optimizer")
    for path, declared in {**effective(trial.method, ranges), **optimizer}.items():
        before = when_of(kept[path]) if path in kept else declared
        own = {key: before[key] for key in declared if key in before}
        if path in whens:
            whens[path] = own | whens[path]
    found: dict[str, BaseDistribution] = {}
    for path in in_order(ranges, whens):
        for key, wanted in [*whens[path].items()]:
            if key in found:
                _check_values(f"search_space.{path}.when.{key}", found[key], wanted)
            elif value_at(trial, key) in wanted:
                del whens[path][key]  # fixed here
            else:
                break
        else:
            found[path] = ranges[path]
    return found, {path: whens[path] for path in found if whens[path]}


def _check_values(where: str, of: BaseDistribution, wanted: Sequence[object]) -> None:
    if not isinstance(of, CategoricalDistribution):
        found = f"is searched over the range {one_line(to_plain(of))}"
        raise FieldError(where, found, "Give it choices, or name another.")
    for value in wanted:
        if value not in of.choices:
            near = nearest(str(value), [str(one) for one in of.choices])
            raise FieldError(where, f"{value!r} is none of its choices", near)


def check_searched(entries: Mapping[str, Entry], searched: Sequence[Ranges]) -> None:
    """Raise FieldError for a `when` on what no method searches. searched: of each method."""
    known = {path for ranges in searched for path in ranges}
    for path, entry in entries.items():
        for key in when_of(entry):
            if key not in known:
                mend = f"Give {key} choices in `search_space`, or remove it here."
                raise FieldError(f"search_space.{path}.when.{key}", "is not searched", mend)
