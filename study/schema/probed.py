"""The settings of a method with which a probe measures what its trials cost."""

from __future__ import annotations

import math
import statistics
from itertools import product
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from study.schema.variant import Space


def settings_of(space: Space) -> list[tuple[float, dict[str, Any]]]:
    """The settings of a method to probe, weighted: the first default, else the middle of each range.

    What plainly changes the cost (the batch size, the network's size) is probed at its lowest and its highest.
    """
    first = {path: _middle(entry) for path, entry in space.distributions.items()}
    first |= space.defaults[0] if space.defaults else {}
    sizes = [
        path for path in space.distributions if path == "batch_size" or path.startswith("model.")
    ]
    ends = [_ends(path, space.distributions[path]) for path in sizes]
    return [
        (
            math.prod(weight for weight, _ in chosen),
            {**first, **dict(zip(sizes, (v for _, v in chosen), strict=True))},
        )
        for chosen in product(*ends)
    ]


def _middle(entry: BaseDistribution) -> Any:
    if isinstance(entry, CategoricalDistribution):
        return entry.choices[len(entry.choices) // 2]
    assert isinstance(entry, FloatDistribution | IntDistribution)
    middle = math.sqrt(entry.low * entry.high) if entry.log else (entry.low + entry.high) / 2
    return round(middle) if isinstance(entry, IntDistribution) else middle


def _ends(path: str, entry: BaseDistribution) -> list[tuple[float, Any]]:
    """The lowest and the highest value, weighted so that a cost linear in it has its mean; for a batch size, a cost
    linear in the number of steps. Each of some choices that are no numbers."""
    if isinstance(entry, CategoricalDistribution):
        numbers = [value for value in entry.choices if isinstance(value, int | float)]
        if len(numbers) < len(entry.choices):
            return [(1 / len(entry.choices), value) for value in entry.choices]
        low, high = min(numbers), max(numbers)
        mean = statistics.fmean(1 / value if path == "batch_size" else value for value in numbers)
    else:
        assert isinstance(entry, FloatDistribution | IntDistribution)
        low, high = entry.low, entry.high
        mean = (
            _mean_of_inverse(low, high, entry.log)
            if path == "batch_size"
            else _mean_between(low, high, entry.log)
        )
    if low == high:
        return [(1.0, low)]
    at_low, at_high = (1 / low, 1 / high) if path == "batch_size" else (low, high)
    weight = (mean - at_high) / (at_low - at_high)
    return [(weight, low), (1 - weight, high)]


def _mean_between(low: float, high: float, log: bool) -> float:
    return (high - low) / math.log(high / low) if log and low < high else (low + high) / 2


def _mean_of_inverse(low: float, high: float, log: bool) -> float:
    """Of 1/x, for x uniform between the ends, or log-uniform."""
    if low == high:
        return 1 / low
    return (
        (1 / low - 1 / high) / math.log(high / low) if log else math.log(high / low) / (high - low)
    )
