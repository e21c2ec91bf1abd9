"""Whether methods differ, each known from a few seeds measured on the same samples.

Two sources of uncertainty. Another seed trains another network. Other samples change the values of
all networks, so they are resampled together. Intervals are simultaneous over all pairs of methods:
the best one was selected by the same values. docs/why/how-certain.md.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from study.schema.objective import plain_name
from study.uncertainty import studentized_range
from study.uncertainty.bootstrap import (
    RESAMPLES,
    by_prefix,
    estimates_of,
    intervals_of,
    logits_of,
    measured,
    resampled_names,
    values_of,
    worlds_of,
)
from study.uncertainty.consistency import calibrated_sums
from study.uncertainty.intervals import (
    FRACTIONS,
    LEVEL,
    WITH_FLOOR,
    CalibrationInterval,
    Floor,
    Interval,
    floor_of,
    mean_floor,
    unseen,
)
from study.uncertainty.resampling import (
    Draws,
    Floats,
    SampleTerms,
    chances_of,
    differs,
    draws_for,
    effective_groups,
    known_groups,
    too_few,
)
from study.uncertainty.worlds import Resampled, Worlds
from trainables.machine import in_threads
from trainables.metrics import describe
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError


class Seeds(NamedTuple):
    """One metric of a method's n networks: [n] on the samples, [n, B] on B shared resamples.

    unseen: how much larger it may truly be through wrong predictions missing from the samples;
    infinite if unbounded. worlds: of the mean, if it is a calibration error.
    """

    values: Floats
    resampled: Floats
    unseen: float = 0.0
    worlds: Worlds | None = None

    @property
    def spread(self) -> float:
        """The largest difference of two networks on the samples."""
        return float(np.ptp(self.values))

    @property
    def vary(self) -> bool:
        """Whether any two networks differ, on the samples or on a resample of them."""
        return bool(self.spread or np.ptp(self.resampled, axis=0).any())


class _Parts(NamedTuple):
    """The variance of a difference of two means, by source.

    From seeds, with its degrees of freedom; from samples; of that, what the seeds of a method
    share. centre: of the interval; the difference itself where that is not biased.
    """

    seeds: float
    freedom: float
    samples: float
    shared: float
    centre: float


MOST_SEEDS = 1000
ROUNDING = 1e-7  # of accuracies in float32


@dataclass(frozen=True)
class Methods:
    """One metric of several methods, each with at least two seeds; by name."""

    rows: Mapping[str, Seeds]
    level: float = LEVEL
    groups: float = math.inf  # see `effective_groups`
    samples: int = 0  # of a fraction: how many there are, or groups of them; else 0

    def difference(self, one: str, other: str) -> Interval:
        """mean(one) - mean(other), with an interval simultaneous over all pairs.

        Seeds: Games & Howell 1976, with variances that borrow from the other methods (as in Smyth
        2004). Samples: the variance of the resampled difference. The two add up, each with its own
        quantile (Graybill & Wang 1980).
        """
        first = self.rows[one]
        second = self.rows[other]
        parts = self._parts(one, other)
        reach = math.sqrt(self._square(parts))
        if self.samples and parts.samples < ROUNDING**2:  # no sample in which they differ
            square = self._of_samples
            reach = max(reach, square / (square + self.samples))  # Wilson's limit of a share of 0
        estimate = float(first.values.mean() - second.values.mean())
        low = parts.centre - reach - second.unseen
        return Interval(estimate, low, parts.centre + reach + first.unseen)

    def seeds_to_tell(self, one: str, other: str, matters: float) -> int | None:
        """About how many seeds of each would tell the two apart, or as good, at today's estimates.

        None where more than MOST_SEEDS would be needed, or more samples.
        """
        first = self.rows[one]
        second = self.rows[other]
        parts = self._parts(one, other)
        gap = abs(parts.centre)
        wanted = max(gap, matters - gap)
        now = min(len(first.values), len(second.values))

        left = wanted - first.unseen - second.unseen
        of_seeds = left**2 - self._of_samples * parts.shared

        def tells(seeds: int) -> bool:
            variance = parts.seeds * now / seeds
            if left < 0 or of_seeds < 0:
                return False
            if not variance:
                return True
            freedom = parts.freedom * (seeds - 1) / (now - 1)
            return self._reaches(math.sqrt(of_seeds / variance), freedom)

        if not tells(MOST_SEEDS):
            return None
        more = range(now + 1, MOST_SEEDS)
        return more.start + bisect_left(more, True, key=tells)

    def typical_reach(self) -> tuple[float, float]:
        """The median half-width over all pairs, and the share of its square that samples make."""
        found = []
        for one, other in itertools.combinations(self.rows, 2):
            parts = self._parts(one, other)
            square = self._square(parts)
            of_samples = self._of_samples * parts.shared
            found.append((math.sqrt(square), of_samples / square if square else 0.0))
        return sorted(found)[len(found) // 2] if found else (0.0, 0.0)

    def _square(self, parts: _Parts) -> float:
        """The square of the half-width of an interval."""
        few = self._quantile(parts.freedom) ** 2
        many = self._of_samples
        return max(few * parts.seeds + many * parts.shared, many * parts.samples)

    @property
    def _of_samples(self) -> float:
        """The square of the quantile for a variance over resamples; of groups as in `widened`."""
        if math.isinf(self.groups):
            return self._quantile(math.inf) ** 2
        return self._quantile(self.groups - 1) ** 2 * self.groups / (self.groups - 1)

    def _parts(self, one: str, other: str) -> _Parts:
        first = self.rows[one]
        second = self.rows[other]
        seeds, freedom = self._between_seeds(one, other)
        centre = float(first.values.mean() - second.values.mean())
        samples = float(np.var(first.resampled.mean(0) - second.resampled.mean(0)))
        if first.worlds is not None and second.worlds is not None:
            quantile = math.sqrt(self._of_samples)
            low, high = first.worlds.less(second.worlds, 2 * NormalDist().cdf(quantile) - 1)
            centre = (low + high) / 2
            samples = ((high - low) / 2 / quantile) ** 2
        # How differently a method's own networks vary with the samples is in both.
        shared = max(0.0, samples - _own(first) - _own(second))
        return _Parts(seeds, freedom, samples, shared, centre)

    def _quantile(self, freedom: float) -> float:
        return _quantile(max(2, len(self.rows)), freedom, self.level)

    def _reaches(self, errors: float, freedom: float) -> bool:
        """Whether the quantile is at most that; to find the quantile takes ten times as long."""
        methods = max(2, len(self.rows))
        freedom = _in_quarters(freedom)
        return studentized_range.share(errors * math.sqrt(2), methods, freedom) >= self.level

    def tied(self, best: str) -> set[str]:
        """The methods whose difference from `best` has an interval that contains 0."""
        found = {name: self.difference(name, best) for name in self.rows if name != best}
        return {name for name, (_, low, high) in found.items() if low <= 0 <= high}

    def _between_seeds(self, *pair: str) -> tuple[float, float]:
        """The variance of a difference due to seeds, and its degrees of freedom (Welch 1947).

        A method's variance is its own and, weighted by `lent_to`, the mean of the methods outside
        the pair, so that two methods alone lend nothing. One whose seeds measure the same has no
        variance to lend; one whose seeds do so on every resample trains no other network, and
        borrows none.
        """
        freedom = {name: len(row.values) - 1 for name, row in self.rows.items()}
        variance = {name: float(np.var(row.values, ddof=1)) for name, row in self.rows.items()}
        others = [name for name, row in self.rows.items() if name not in pair and row.spread]
        known = [(freedom[name], variance[name]) for name in others]
        of_others = sum(each for each, _ in known)
        parts = []
        for name in pair:
            if not self.rows[name].vary:
                continue
            seeds = freedom[name] + 1
            lent = min(lent_to(freedom[name]), of_others / 2)
            degrees = freedom[name] + lent
            mean = mean_variance(known, min(1.0, 2 / freedom[name])) if known else 0.0
            own = (freedom[name] * variance[name] + lent * mean) / degrees
            parts.append((own / seeds, degrees))
        total = sum(part for part, _ in parts)
        of_each = sum(part**2 / degrees for part, degrees in parts)
        if not of_each:
            return total, math.inf
        return total, min(sum(freedom.values()), total**2 / of_each)


def lent_to(freedom: float) -> float:
    """The weight, in degrees of freedom, of the others' mean variance beside a method's own.

    1 with two or three seeds: unequal spreads keep more from being lent. 2 with five. 1 again from
    nine on: these know their own variance, and one noisy method would widen all other intervals.
    Chosen by benchmarks/experiments/tied.py.
    """
    return max(1.0, min(freedom / 2, 8 / max(1.0, freedom)))


def mean_variance(known: Sequence[tuple[float, float]], power: float) -> float:
    """The power mean of variances, each with its degrees of freedom: arithmetic with power 1, near
    0 almost geometric. Of many normal samples with one variance, it is that variance; of few a
    little more.
    """
    if len(known) == 1:
        return known[0][1]
    total = sum(freedom for freedom, _ in known)
    mean = sum(freedom * variance**power for freedom, variance in known) / total
    bias = sum(
        freedom
        * (2 / freedom) ** power
        * math.exp(math.lgamma(freedom / 2 + power) - math.lgamma(freedom / 2))
        for freedom, _ in known
    )
    return float((mean * total / bias) ** (1 / power))


def _quantile(methods: int, freedom: float, level: float) -> float:
    """The quantile of the largest of all pairwise differences, in standard errors of one."""
    return studentized_range.quantile(methods, _in_quarters(freedom), level) / math.sqrt(2)


def _in_quarters(freedom: float) -> float:
    return freedom if math.isinf(freedom) else math.floor(4 * freedom) / 4


def _own(row: Seeds) -> float:
    """The part of its mean's variance over resamples that its networks do not share."""
    count = len(row.values)
    own = float(np.var(row.resampled - row.resampled.mean(0), axis=1).sum())
    return own / (count * (count - 1))


# ---- from predictions ----------------------------------------------------------------------------


class NetworkPredictions(NamedTuple):
    """A network's predictions, and a temperature fitted elsewhere; None: cross-fitted on these."""

    predictions: Predictions
    temperature: float | None = None


def compare_methods(
    networks: Mapping[str, Sequence[NetworkPredictions]],
    wanted: Collection[str],
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    unit: str = "groups",
) -> dict[str, Methods]:
    """The methods with at least two networks (seeds), by metric; only resampled metrics.

    unit: what groups of samples are called, if there are any. Raises FieldError if the networks
    were not measured on the same samples.
    """
    several = {name: found for name, found in networks.items() if len(found) > 1}
    methods: list[str] = []
    for name, of in several.items():
        methods += [name] * len(of)
    every = list(itertools.chain(*several.values()))
    if not every:
        return {}
    first = every[0].predictions
    if reason := too_few(first, unit):
        raise FieldError("bootstrap", reason)
    for name, network in zip(methods, every, strict=True):
        if what := differs(network.predictions, first):
            raise FieldError(
                name, f"its {what} differ from those of {methods[0]}; they cannot be compared"
            )
    draws = draws_for(first, resamples)
    names = [name for name in resampled_names() if name in wanted]
    found = in_threads(lambda network: _one_network(network, draws, names, level), every)
    by_method: dict[str, list[dict[str, Seeds]]] = {name: [] for name in several}
    for name, values in zip(methods, found, strict=True):
        by_method[name].append(values)
    compared = {}
    for metric in names:
        if all(metric in values for values in found):
            rows = {name: joined([one[metric] for one in of]) for name, of in by_method.items()}
            units = len(draws.counts) if plain_name(metric) in FRACTIONS else 0
            compared[metric] = Methods(rows, level, effective_groups(draws.groups), units)
    return compared


def mean_over_seeds(
    networks: Sequence[NetworkPredictions],
    wanted: Collection[str],
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Interval]:
    """The mean of each metric over a method's seeds, with an interval over seeds and samples.

    Samples: the mean of the networks' own intervals, which is wide enough for their mean. Seeds:
    Student's t with n - 1 degrees of freedom; nothing for one seed. Half-widths add in quadrature.
    A metric for which a network has no interval is absent; so are all where there are too few
    groups. Each network needs its temperature for metrics after it. The floor is the mean of
    theirs.
    """
    if too_few(networks[0].predictions):
        return {}
    draws = draws_for(networks[0].predictions, resamples)

    def own(network: NetworkPredictions) -> dict[str, Interval]:
        parts = measured(network.predictions, draws, wanted, network.temperature)
        return intervals_of(parts, wanted, level)

    found = in_threads(own, networks)
    means = {}
    for name in wanted:
        if all(name in of for of in found):
            means[name] = _mean_of([of[name] for of in found], name, level)
    return means


def _mean_of(networks: Sequence[Interval], metric: str, level: float) -> Interval:
    """The mean of one metric over networks, with an interval over seeds and samples."""
    estimates, lows, highs = np.array(networks).T
    seeds = 0.0
    if len(estimates) > 1:
        spread = estimates.std(ddof=1) / math.sqrt(len(estimates))
        seeds = float(stdtrit(len(estimates) - 1, (1 + level) / 2)) * spread
    middle = (highs.mean() + lows.mean()) / 2
    reach = math.hypot((highs.mean() - lows.mean()) / 2, seeds)
    low = max(0.0, middle - reach)
    high = min(describe(metric).largest or math.inf, middle + reach)
    mean = Interval(float(estimates.mean()), low, high)
    floors = [network.floor for network in networks if network.floor is not None]
    return CalibrationInterval(*mean, mean_floor(floors)) if floors else mean


def floors_over_seeds(
    networks: Sequence[NetworkPredictions],
    wanted: Collection[str],
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Floor]:
    """The mean of the networks' floors of each wanted error, as `mean_over_seeds` has it."""
    if not networks or too_few(networks[0].predictions):
        return {}
    first = networks[0].predictions.arrays
    chances = chances_of(len(first.labels), resamples, 0, first.groups)
    found = in_threads(lambda network: _own_floors(network, chances, wanted, level), networks)
    return {
        name: mean_floor([of[name] for of in found])
        for name in wanted
        if all(name in of for of in found)
    }


def _own_floors(
    network: NetworkPredictions, chances: Floats, wanted: Collection[str], level: float
) -> dict[str, Floor]:
    found: dict[str, Floor] = {}
    arrays = network.predictions.arrays
    groups = known_groups(arrays.groups)
    with_floor = [name for name in wanted if plain_name(name) in WITH_FLOOR]
    for prefix, own in by_prefix(with_floor).items():
        logits = logits_of(network.predictions, prefix, network.temperature)
        given = None if prefix else arrays.given
        classwise = "classwise_ece" in own
        table = SampleTerms.of(logits, arrays.labels, classwise, groups=groups, given=given)
        drawn = calibrated_sums(table, chances).calibration(own)
        found |= {prefix + name: floor_of(values, level) for name, values in drawn.items()}
    return found


def _one_network(
    network: NetworkPredictions, draws: Draws, wanted: Collection[str], level: float
) -> dict[str, Seeds]:
    """Each metric of one network, as Seeds of one value."""
    return seeds_of_one(
        measured(network.predictions, draws, wanted, network.temperature), wanted, level
    )


def seeds_of_one(
    parts: dict[str, Resampled], wanted: Collection[str], level: float = LEVEL
) -> dict[str, Seeds]:
    """The same, of what was measured."""
    estimates = estimates_of(parts)
    found = {}
    resampled = values_of(parts, wanted)
    worlds = worlds_of(parts, resampled)
    for name, values in resampled.items():
        if name in estimates:
            plain = plain_name(name)
            # Hits, and so what is unseen, survive a temperature.
            sample = parts[name.removesuffix(plain)].sample
            missing = unseen(sample, plain, level)
            own = np.array([estimates[name]])
            found[name] = Seeds(own, values[None], missing, worlds.get(name))
    return found


def joined(networks: Sequence[Seeds]) -> Seeds:
    """A method's networks, each of one value."""
    worlds = [network.worlds for network in networks if network.worlds is not None]
    return Seeds(
        np.concatenate([network.values for network in networks]),
        np.concatenate([network.resampled for network in networks]),
        float(np.mean([network.unseen for network in networks])),
        Worlds.mean(worlds) if worlds else None,
    )
