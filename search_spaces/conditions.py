"""Conditional ranges: what is searched only where choices have certain values."""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import product

from optuna.distributions import BaseDistribution, CategoricalDistribution

from trainables.plain import Value
from trainables.problems import FieldError

When = Mapping[str, tuple[Value, ...]]  # by path of choices, the values where a range is searched
Whens = Mapping[str, When]  # by path of the range
Ranges = Mapping[str, BaseDistribution]
NO_WHENS: Whens = {}


def in_order(paths: Iterable[str], whens: Whens) -> list[str]:
    """The paths, sorted, but each after those of its `when`. Raises FieldError for a circle."""
    known = sorted(paths)
    before = {path: [key for key in whens.get(path, {}) if key in known] for path in known}
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as error:
        where = f"search_space.{error.args[1][0]}.when"
        circle = f"goes in a circle: {' -> '.join(error.args[1])}"
        raise FieldError(where, circle, "Remove one.") from None


def searched_in(values: Mapping[str, Value], ranges: Ranges, whens: Whens) -> list[str]:
    """The paths of the ranges, in their order, that are searched where these values are taken."""
    found = []
    taken: dict[str, Value] = {}
    for path in ranges:
        when = whens.get(path, {})
        if all(key in taken and taken[key] in wanted for key, wanted in when.items()):
            found.append(path)
            if path in values:
                taken[path] = values[path]
    return found


def most_searched(ranges: Ranges, whens: Whens) -> int:
    """As many paths as a trial may have."""
    keys = {key: ranges[key] for when in whens.values() for key in when}
    choices = [of.choices for of in keys.values() if isinstance(of, CategoricalDistribution)]
    taken = (dict(zip(keys, values, strict=True)) for values in product(*choices))
    return max(len(searched_in(values, ranges, whens)) for values in taken)


def in_words(when: When) -> str:
    """`optimizer.name is sgd and optimizer.schedule is steps or cosine`."""
    each = (f"{key} is {' or '.join(map(str, wanted))}" for key, wanted in when.items())
    return " and ".join(each)
