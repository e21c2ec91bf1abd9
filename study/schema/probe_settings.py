"""The settings of a method with which a probe measures what its trials cost."""

from __future__ import annotations

import math
import statistics
from itertools import product

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from study.schema.variant import Space
from trainables.plain import Value


def settings_of(space: Space) -> list[tuple[float, dict[str, Value]]]:
    """The settings of a method to probe, weighted: the first default, else each range's middle.

    What plainly changes the cost (the batch size, the network's size) is probed at its lowest and
    its highest.
    """
    first = {path: _middle(entry) for path, entry in space.distributions.items()}
    if space.defaults:
        first |= space.defaults[0]
    sizes = [
        path for path in space.distributions if path == "batch_size" or path.startswith("model.")
    ]
    found = []
    for chosen in product(*(_ends(path, space.distributions[path]) for path in sizes)):
        weight = math.prod(weight for weight, _ in chosen)
        ends = dict(zip(sizes, (end for _, end in chosen), strict=True))
        found.append((weight, {**first, **ends}))
    return found


def _middle(entry: BaseDistribution) -> Value:
    if isinstance(entry, CategoricalDistribution):
        return entry.choices[len(entry.choices) // 2]
    assert isinstance(entry, FloatDistribution | IntDistribution)
    middle = math.sqrt(entry.low * entry.high) if entry.log else (entry.low + entry.high) / 2
    return round(middle) if isinstance(entry, IntDistribution) else middle


def _ends(path: str, entry: BaseDistribution) -> list[tuple[float, Value]]:
    """The lowest and the highest value, weighted so that the cost has its mean.

    The cost is linear in a value; in a batch size, linear in the number of steps. Choices that are
    no numbers are probed each.
    """
    by_steps = path == "batch_size"
    if isinstance(entry, CategoricalDistribution):
        numbers = [value for value in entry.choices if isinstance(value, int | float)]
        if len(numbers) < len(entry.choices):
            return [(1 / len(entry.choices), value) for value in entry.choices]
        low, high = min(numbers), max(numbers)
        mean = statistics.fmean([1 / value for value in numbers] if by_steps else numbers)
    else:
        assert isinstance(entry, FloatDistribution | IntDistribution)
        low, high = entry.low, entry.high
        mean_of = _mean_of_inverse if by_steps else _mean_between
        mean = mean_of(low, high, entry.log)
    if low == high:
        return [(1.0, low)]
    at_low, at_high = (1 / low, 1 / high) if by_steps else (low, high)
    weight = (mean - at_high) / (at_low - at_high)
    return [(weight, low), (1 - weight, high)]


def _mean_between(low: float, high: float, log: bool) -> float:
    if log and low < high:
        return (high - low) / math.log(high / low)
    return (low + high) / 2


def _mean_of_inverse(low: float, high: float, log: bool) -> float:
    """The mean of 1/x, for x uniform between the ends, or log-uniform."""
    if low == high:
        return 1 / low
    if log:
        return (1 / low - 1 / high) / math.log(high / low)
    return math.log(high / low) / (high - low)
