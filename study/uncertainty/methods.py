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
from scipy.stats import t as student_t

from study.schema.objective import plain_name
from study.uncertainty.bootstrap import (
    FEWEST_SAMPLES,
    RESAMPLES,
    measured,
    resampled,
    resampled_names,
)
from study.uncertainty.intervals import LEVEL, Interval, intervals, unseen
from study.uncertainty.resampling import Draws, Floats
from trainables.fields import FieldError
from trainables.metrics import AFTER_TEMPERATURE, describe
from trainables.outputs.predictions import Predictions
from trainables.threads import in_threads


class Seeds(NamedTuple):
    """One metric of a method's n networks: on the samples, [n], and on B resamples shared by all methods, [n, B].

    unseen: how much larger it may truly be through wrong predictions missing from the samples; infinite if unbounded.
    """

    values: Floats
    resampled: Floats
    unseen: float = 0.0


# A method's variance between seeds is its own and, with this weight, the mean of the methods outside the pair: unequal
# spreads keep more from being lent, and two methods alone lend nothing (benchmarks/tied.py).
LENT = 0.5


@dataclass(frozen=True)
class Methods:
    """One metric of several methods, each with at least two seeds; by name."""

    rows: Mapping[str, Seeds]
    level: float = LEVEL

    def difference(self, one: str, other: str) -> Interval:
        """mean(one) - mean(other), with an interval simultaneous over all pairs.

        Seeds: Games & Howell 1976, with variances that borrow from the other methods (as in Smyth 2004). Samples: the
        variance of the resampled difference. The two add up, each with its own quantile (Graybill & Wang 1980).
        """
        first, second = self.rows[one], self.rows[other]
        seeds, freedom = self._between_seeds(one, other)
        samples = float(np.var(first.resampled.mean(0) - second.resampled.mean(0)))
        # How differently a method's own networks vary with the samples is in both.
        shared = max(0.0, samples - _own(first) - _own(second))
        few, many = (
            _quantile(max(2, len(self.rows)), each, self.level) ** 2 for each in (freedom, math.inf)
        )
        reach = math.sqrt(max(few * seeds + many * shared, many * samples))
        estimate = float(first.values.mean() - second.values.mean())
        return Interval(estimate, estimate - reach - second.unseen, estimate + reach + first.unseen)

    def tied(self, best: str) -> set[str]:
        """The methods not significantly different from `best`: the interval of the difference contains 0."""
        found = {name: self.difference(name, best) for name in self.rows if name != best}
        return {name for name, (_, low, high) in found.items() if low <= 0 <= high}

    def _between_seeds(self, *pair: str) -> tuple[float, float]:
        """The variance of the difference of two means that is due to seeds, and its degrees of freedom (Welch 1947)."""
        freedom = {name: len(row.values) - 1 for name, row in self.rows.items()}
        variance = {name: float(np.var(row.values, ddof=1)) for name, row in self.rows.items()}
        others = [name for name in self.rows if name not in pair]
        of_others = sum(freedom[name] for name in others)
        mean = sum(freedom[name] * variance[name] for name in others) / of_others if others else 0.0
        parts = []
        for name in pair:
            lent = min(LENT, of_others / (2 * freedom[name]))
            own = (variance[name] + lent * mean) / (1 + lent)
            parts.append((own / (freedom[name] + 1), (1 + lent) * freedom[name]))
        total, of_each = (
            sum(part for part, _ in parts),
            sum(part**2 / degrees for part, degrees in parts),
        )
        return total, min(sum(freedom.values()), total**2 / of_each) if of_each else math.inf


def _quantile(methods: int, freedom: float, level: float) -> float:
    """Of the largest of all pairwise differences, in standard errors of one."""
    return _studentized_range(
        methods, freedom if math.isinf(freedom) else math.floor(4 * freedom) / 4, level
    )


@functools.cache
def _studentized_range(methods: int, freedom: float, level: float) -> float:
    return float(studentized_range.ppf(level, methods, freedom)) / math.sqrt(2)


def _own(row: Seeds) -> float:
    """The part of its mean's variance over resamples that its networks do not share."""
    count = len(row.values)
    return float(np.var(row.resampled - row.resampled.mean(0), axis=1).sum()) / (
        count * (count - 1)
    )


# ---- from predictions ----------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A network's predictions, and the temperature fitted on other samples; None: cross-fitted on these."""

    predictions: Predictions
    temperature: float | None = None


def compare_methods(
    networks: Mapping[str, Sequence[Measured]],
    wanted: Collection[str],
    resamples: int = RESAMPLES,
    level: float = LEVEL,
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
        raise FieldError(
            odd[0], f"its labels differ from those of {every[0][0]}; they cannot be compared."
        )
    counts = Draws.of(len(labels), resamples, 0).counts
    names = [name for name in resampled_names() if name in wanted]
    found = in_threads(lambda one: _one_network(one[1], counts, names, level), every)
    by_method = {
        name: [values for (of, _), values in zip(every, found, strict=True) if of == name]
        for name in several
    }
    return {
        metric: Methods(
            {name: _seeds([values[metric] for values in of]) for name, of in by_method.items()},
            level,
        )
        for metric in names
        if all(metric in values for values in found)
    }


def mean_over_seeds(
    networks: Sequence[Measured],
    wanted: Collection[str],
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Interval]:
    """The mean of each metric over a method's networks (seeds), with an interval over seeds and samples.

    Samples: the mean of the networks' own intervals, which is wide enough for their mean. Seeds: Student's t with n - 1
    degrees of freedom; nothing for one seed. Half-widths add in quadrature. A metric for which a network has no
    interval is absent. Each network needs its temperature for metrics after it.
    """
    draws = Draws.of(len(networks[0].predictions.labels), resamples, 0)
    found = in_threads(lambda network: _own_intervals(network, draws, wanted, level), networks)
    means = {}
    for name in (name for name in wanted if all(name in of for of in found)):
        estimates, lows, highs = np.array([of[name] for of in found]).T
        spread = estimates.std(ddof=1) / math.sqrt(len(estimates)) if len(estimates) > 1 else 0.0
        seeds = float(student_t.ppf((1 + level) / 2, max(1, len(estimates) - 1))) * spread
        middle, half = (highs.mean() + lows.mean()) / 2, (highs.mean() - lows.mean()) / 2
        reach = math.hypot(half, seeds)
        largest = describe(name).largest or math.inf
        means[name] = Interval(
            float(estimates.mean()), max(0.0, middle - reach), min(largest, middle + reach)
        )
    return means


def _own_intervals(
    network: Measured, draws: Draws, wanted: Collection[str], level: float
) -> dict[str, Interval]:
    found: dict[str, Interval] = {}
    for prefix in ("", AFTER_TEMPERATURE):
        own = {
            plain_name(name)
            for name in wanted
            if name.startswith(AFTER_TEMPERATURE) == bool(prefix)
        }
        if own:
            by = (network.temperature or 1.0) if prefix else 1.0
            scaled = Predictions(
                network.predictions.logits.double() / by, network.predictions.labels
            )
            sure = intervals(measured(scaled, draws, own)[""], level, own)
            found |= {prefix + name: one for name, one in sure.items()}
    return found


def _one_network(
    network: Measured, counts: Floats, wanted: Collection[str], level: float
) -> dict[str, Seeds]:
    """Each metric of one network, as Seeds of one value."""
    found = {}
    for prefix in ("", AFTER_TEMPERATURE):
        own = {
            plain_name(name)
            for name in wanted
            if name.startswith(AFTER_TEMPERATURE) == bool(prefix)
        }
        if own:
            classwise = "classwise_ece" in own
            table, again = resampled(
                network.predictions, counts, prefix, classwise, network.temperature
            )
            total, moved = table.total(), again.metrics(own)
            for name, value in total.metrics(own).items():
                if name in moved:
                    found[prefix + name] = Seeds(
                        value, moved[name][None], unseen(total, name, level)
                    )
    return found


def _seeds(networks: Sequence[Seeds]) -> Seeds:
    values, again = (np.concatenate([network[part] for network in networks]) for part in range(2))
    return Seeds(values, again, float(np.mean([network.unseen for network in networks])))
