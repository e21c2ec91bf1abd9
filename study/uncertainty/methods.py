"""Whether methods differ, each known from a few seeds measured on the same samples: docs/uncertainty.md.

Two sources of uncertainty. Another seed trains another network. Other samples change the values of all networks, so
they are resampled together. Intervals are simultaneous over all pairs of methods: the best one was selected by the same
values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import studentized_range

from study.schema.objective import plain_name
from study.uncertainty.bootstrap import FEWEST_SAMPLES, RESAMPLES, resampled, resampled_names
from study.uncertainty.intervals import LEVEL, Interval, unseen
from study.uncertainty.resampling import Draws, Floats
from trainables.fields import FieldError
from trainables.metrics import AFTER_TEMPERATURE
from trainables.outputs.predictions import Predictions
from trainables.threads import in_threads


class Seeds(NamedTuple):
    """One metric of a method's n networks: on the samples, [n], and on B resamples shared by all methods, [n, B].

    unseen: how much larger it may truly be through wrong predictions missing from the samples; infinite if unbounded.
    """

    values: Floats
    resampled: Floats
    unseen: float = 0.0


@dataclass(frozen=True)
class Methods:
    """One metric of several methods, each with at least two seeds; by name."""

    rows: Mapping[str, Seeds]

    def difference(self, one: str, other: str, level: float = LEVEL) -> Interval:
        """mean(one) - mean(other), with an interval simultaneous over all pairs.

        Seeds: Games & Howell 1976, with each method's variance averaged with the mean of all methods', which doubles
        its degrees of freedom (as Smyth 2004). Samples: the variance of the resampled difference. The two add up, each
        with its own quantile (Graybill & Wang 1980).
        """
        first, second = self.rows[one], self.rows[other]
        variances = [self._variance(each) / len(each.values) for each in (first, second)]
        seeds, samples = sum(variances), float(np.var(first.resampled.mean(0) - second.resampled.mean(0)))
        # How differently a method's own networks vary with the samples is in both.
        shared = max(0.0, samples - _own(first) - _own(second))
        most = self._quantile(math.inf, level)
        reach = max(
            self._quantile(self._freedom(first, second), level) ** 2 * seeds + most**2 * shared, most**2 * samples
        )
        estimate, reach = float(first.values.mean() - second.values.mean()), math.sqrt(reach)
        return Interval(estimate, estimate - reach - second.unseen, estimate + reach + first.unseen)

    def tied(self, best: str, level: float = LEVEL) -> set[str]:
        """The methods that cannot be told from `best`: the interval of the difference contains 0."""
        found = {name: self.difference(name, best, level) for name in self.rows if name != best}
        return {name for name, (_, low, high) in found.items() if low <= 0 <= high}

    @functools.cached_property
    def _pooled(self) -> tuple[float, int]:
        """The mean variance between seeds, and its degrees of freedom."""
        freedom = [len(row.values) - 1 for row in self.rows.values()]
        return float(np.average([np.var(row.values, ddof=1) for row in self.rows.values()], weights=freedom)), sum(
            freedom
        )

    def _variance(self, row: Seeds) -> float:
        return (float(np.var(row.values, ddof=1)) + self._pooled[0]) / 2

    def _freedom(self, *rows: Seeds) -> float:
        """Welch's, of the difference of their means."""
        most = self._pooled[1]
        parts = [(self._variance(row) / len(row.values), min(2 * (len(row.values) - 1), most)) for row in rows]
        of_each = sum(part**2 / freedom for part, freedom in parts)
        return min(most, sum(part for part, _ in parts) ** 2 / of_each) if of_each else most

    def _quantile(self, freedom: float, level: float) -> float:
        return _quantile(max(2, len(self.rows)), freedom if math.isinf(freedom) else math.floor(4 * freedom) / 4, level)


@functools.cache
def _quantile(methods: int, freedom: float, level: float) -> float:
    """Of the largest of all pairwise differences, in standard errors of one."""
    return float(studentized_range.ppf(level, methods, freedom)) / math.sqrt(2)


def _own(row: Seeds) -> float:
    """The part of its mean's variance over resamples that its networks do not share."""
    count = len(row.values)
    return float(np.var(row.resampled - row.resampled.mean(0), axis=1).sum()) / (count * (count - 1))


# ---- from predictions ----------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A network's predictions, and the temperature fitted on other samples; None: cross-fitted on these."""

    predictions: Predictions
    temperature: float | None = None


def compare_methods(
    networks: Mapping[str, Sequence[Measured]], wanted: Collection[str], resamples: int = RESAMPLES
) -> dict[str, Methods]:
    """By metric, the methods with at least two networks (seeds). Metrics that are not resampled are absent.

    Raises FieldError if the networks were not measured on the same samples.
    """
    several = {name: found for name, found in networks.items() if len(found) > 1}
    every = [(name, network) for name, found in several.items() for network in found]
    if not every:
        return {}
    labels = every[0][1].predictions.labels
    if len(labels) < FEWEST_SAMPLES:
        raise FieldError("bootstrap", f"{len(labels)} samples are too few to resample.")
    if odd := [name for name, network in every if not network.predictions.labels.equal(labels)]:
        raise FieldError(odd[0], f"its labels differ from those of {every[0][0]}; they cannot be compared.")
    counts = Draws.of(len(labels), resamples, 0).counts
    names = [name for name in resampled_names() if name in wanted]
    found = in_threads(lambda one: _one_network(one[1], counts, names), every)
    by_method = {name: [values for (of, _), values in zip(every, found, strict=True) if of == name] for name in several}
    return {
        metric: Methods({name: _seeds([values[metric] for values in of]) for name, of in by_method.items()})
        for metric in names
        if all(metric in values for values in found)
    }


def _one_network(network: Measured, counts: Floats, wanted: Collection[str]) -> dict[str, Seeds]:
    """Each metric of one network, as Seeds of one value."""
    measured = {}
    for prefix in ("", AFTER_TEMPERATURE):
        own = {plain_name(name) for name in wanted if name.startswith(AFTER_TEMPERATURE) == bool(prefix)}
        if own:
            classwise = "classwise_ece" in own
            table, again = resampled(network.predictions, counts, prefix, classwise, network.temperature)
            total, moved = table.total(), again.metrics(own)
            for name, value in total.metrics(own).items():
                if name in moved:
                    measured[prefix + name] = Seeds(value, moved[name][None], unseen(total, name))
    return measured


def _seeds(networks: Sequence[Seeds]) -> Seeds:
    values, again = (np.concatenate([network[part] for network in networks]) for part in range(2))
    return Seeds(values, again, float(np.mean([network.unseen for network in networks])))
