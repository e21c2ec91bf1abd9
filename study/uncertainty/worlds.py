"""Intervals of calibration errors, and of their differences, that hold where a model is calibrated.

With true gaps m and noise N, a sum of |gaps| measures sum |m + N|: too much, by a bias that depends
on m. A gap of 0 and one of a standard error look alike and have different biases, so the bias is
not known. Therefore several *worlds* m are taken that the data leave possible: the measured gaps,
with the small ones shrunk more and more, or all of one size. An interval is the union over these
worlds; for a difference, over the pairs of them that are possible at once. docs/why/how-certain.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from statistics import NormalDist

import numpy as np
from scipy.special import ndtr, ndtri

from study.uncertainty.resampling import BINS, RESAMPLED, Floats, Indices, Sums

SHRUNK = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, np.inf)  # standard errors below which a gap is 0
EVEN = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # standard errors of each gap that is not significant
# A gap is significant if fewer than so many of all gaps are as large by chance: of 15, beyond two
# standard errors.
BY_CHANCE = 0.68
# A world is left out if an error as large as the measured one, or as small, has a smaller
# probability in it; above a level of .97, half of what the level leaves.
SURPRISE = 0.015
# A pair of worlds is left out if what it leaves of the gaps' difference has a smaller probability.
TOGETHER = 0.001
FURTHEST = 3  # worlds, or pairs, at each end that are looked at more closely
ENOUGH = 5  # resamples beyond a quantile
RARE = 2.0  # variance of hits below which labels are drawn, where there are many bins
HIDDEN = 0.01  # part of a variance below which resamples show nothing of it
PLACES = 150  # at most, at which the gaps of two models are compared
# Two models are alike if the variance of the difference of their gaps, added up, is at most this
# part of the sum of both variances. With more bins, as of more than 100 classes, that is not looked
# at, and there is no lower end: most bins are rare, and to draw their labels would take minutes.
ALIKE = 0.4
MOST_BINS = 1500
ROUNDING = 1e-4  # of sums over samples in float32, and of their ratios
STILL = 1e-3  # standard deviation of a sum that no sample changes, such as that over all classes
NORMAL = NormalDist()
HALVINGS = 45  # of a range of 10 standard errors


@dataclass(frozen=True)
class Resampled:
    """The sums of one set of predictions, of its B resamples, and of B calibrated draws."""

    sample: Sums  # one column, float64
    resamples: Sums
    draw: Callable[[], Sums]

    @cached_property
    def calibrated(self) -> Sums:
        """The sums of the calibrated draws, which are made only where they are needed."""
        return self.draw()

    def estimates(self, wanted: Collection[str] = RESAMPLED) -> dict[str, float]:
        """The wanted metrics, as defined in trainables.metrics."""
        return {name: float(value[0]) for name, value in self.sample.metrics(wanted).items()}


@dataclass(frozen=True)
class Gaps:
    """The gaps of a network's bins, their noise in B resamples, and what may be the true ones."""

    metric: str
    sample: Sums
    measured: Floats  # [bins]
    noise: Floats  # [bins, B]
    true: Floats  # [worlds, bins]

    @classmethod
    def of(cls, metric: str, found: Resampled) -> Gaps:
        measured: Floats = found.sample.gaps(metric)[:, 0]
        resampled = found.resamples.gaps(metric)
        noise: Floats = resampled - measured.astype(resampled.dtype)[:, None]
        if found.sample.groups is None and metric != "smooth_ece" and len(noise) <= MOST_BINS:
            noise = _steadied(noise, found.calibrated.gaps(metric))
        return cls(metric, found.sample, measured, noise, _candidates(measured, noise))

    def errors(self, true: Floats) -> tuple[Floats, Floats]:
        """What resamples measure where the gaps truly are these [worlds, bins], [worlds, B], and
        how much that is too large."""
        error = partial(self.sample.calibration_error, self.metric)
        columns = true.astype(self.noise.dtype)[:, :, None]
        measured = np.array([error(gaps + self.noise) for gaps in columns])
        return measured, measured - np.array([error(gaps, debias=False) for gaps in columns])

    def beside(self, other: Gaps, worlds: Indices) -> tuple[Floats, Floats]:
        """As `errors`, where the true gaps of the other are those of its worlds, and these differ
        from them as measured."""
        return self.errors(other.true[worlds] + (self.measured - other.measured))


@dataclass(frozen=True)
class Worlds:
    """The worlds of a calibration error, or of its mean over networks, in B resamples."""

    error: float  # as measured
    measured: Floats  # [worlds, B]: the error of resamples
    excess: Floats  # [worlds, B]: how much that is too large
    left: Floats  # [worlds, places]: measured gaps less true ones, added up to each place
    noise: Floats  # [places, B]: added up
    skewed: bool  # as resamples of groups are
    networks: tuple[Gaps, ...]  # none with too many bins

    @classmethod
    def of(cls, metric: str, found: Resampled) -> Worlds:
        """The worlds of one network."""
        gaps = Gaps.of(metric, found)
        bins = len(gaps.measured)
        places = np.unique(np.linspace(0, bins - 1, PLACES).round().astype(int))
        return cls(
            float(found.sample.calibration_error(metric, gaps.measured[:, None])[0]),
            *gaps.errors(gaps.true),
            np.cumsum(gaps.measured - gaps.true, axis=1)[:, places],
            np.cumsum(gaps.noise, axis=0)[places],
            found.sample.groups is not None,
            (gaps,) if bins <= MOST_BINS else (),
        )

    @classmethod
    def mean(cls, networks: Sequence[Worlds]) -> Worlds:
        """The worlds of a mean over networks, all of which are in the same of their worlds."""
        parts = [(one.error, one.measured, one.excess, one.left, one.noise) for one in networks]
        means = (np.mean(each, axis=0) for each in zip(*parts, strict=True))
        error, measured, excess, left, noise = means
        gaps = tuple(chain(*(one.networks for one in networks)))
        return cls(float(error), measured, excess, left, noise, networks[0].skewed, gaps)

    def interval(self, level: float) -> tuple[float, float]:
        """The interval of the true error, from 0 on."""
        kept = _possible(self._likely, level)
        nothing = np.zeros_like(self.measured[:1])
        # Both ends may miss as much: an end at 0 is no reason to miss more at the other.
        tail = (1 - level) / 2
        every = np.arange(len(kept))
        low, high = _ends(self.excess[kept], nothing, every, 0 * every, level, self.skewed, tail)
        low, high = max(0.0, self.error - high), max(0.0, self.error - low)
        return low if self.networks else 0.0, high

    def less(self, other: Worlds, level: float) -> tuple[float, float]:
        """The interval of the true error less the other's, on the same samples and resamples."""
        if self.error == other.error and np.array_equal(self.measured, other.measured):
            return 0.0, 0.0
        mine, others = _possible(self._likely, level), _possible(other._likely, level)
        rows, columns = np.nonzero(self._together(other, mine, others))
        first, second = self.excess[mine], other.excess[others]
        if self._is_like(other):
            here, more = self._beside(other, others, level)
            there, more_of_other = other._beside(self, mine, level)
            rows = np.concatenate([rows, len(first) + np.arange(len(here)), there])
            columns = np.concatenate([columns, here, len(second) + np.arange(len(there))])
            first = np.concatenate([first, more])
            second = np.concatenate([second, more_of_other])
        low, high = _ends(first, second, rows, columns, level, self.skewed)
        estimate = self.error - other.error
        return estimate - high, estimate - low

    @cached_property
    def _spread(self) -> Floats:
        """The standard deviation of the noise at each place."""
        found: Floats = self.noise.std(axis=1, dtype=np.float64)
        return found

    @cached_property
    def _likely(self) -> Floats:
        return _probability(self.error, self.measured)

    def _together(self, other: Worlds, mine: Indices, others: Indices) -> np.ndarray:
        """Which of these worlds are possible at once, [mine, others].

        The gaps of two networks that are nearly one differ by nearly nothing, and so do their true
        ones: what a pair leaves of the difference of their gaps may not be larger than the noise of
        that difference is. Gaps are added up from the lowest bin on, so that a sample that one
        network puts into the next bin counts once, not twice.
        """
        noise = self.noise - other.noise
        weights = np.maximum(noise.std(axis=1, dtype=np.float64), ROUNDING) ** -2
        weights[(self._spread < STILL) & (other._spread < STILL)] = 0
        usual = _ordered(weights @ noise**2, int(TOGETHER * noise.shape[1]))[1]
        left = self.left[mine][:, None] - other.left[others]
        found: np.ndarray = left**2 @ weights <= usual
        return found if found.any() else np.ones_like(found)

    def _is_like(self, other: Worlds) -> bool:
        """Whether the two are so much alike that few pairs of their worlds are possible."""
        if not self.networks or len(self.networks) != len(other.networks):
            return False
        apart = ((self.noise - other.noise) ** 2).sum(dtype=np.float64)
        return bool(apart <= ALIKE * ((self.noise**2).sum() + (other.noise**2).sum()))

    def _beside(self, other: Worlds, worlds: Indices, level: float) -> tuple[Indices, Floats]:
        """Which of the other's worlds, of those furthest out, this error is possible beside if the
        gaps differ as measured; and its excess in them."""
        order = np.argsort(other.excess[worlds].mean(axis=1))
        which = np.unique(order[[0, -1]])
        each = [
            one.beside(its, worlds[which])
            for one, its in zip(self.networks, other.networks, strict=True)
        ]
        measured, excess = (np.mean(of, axis=0) for of in zip(*each, strict=True))
        kept = _possible(_probability(self.error, measured), level)
        return which[kept], excess[kept]


def _probability(error: float, measured: Floats) -> Floats:
    """Of an error as large as this one, or as small, whichever is smaller, [worlds].

    measured: errors of resamples, [worlds, B]; by their shares, or as their normal distribution has
    it, whichever is larger: no resample of few bins is as near to 0 as the error may be by luck.
    """
    above = (measured >= error).mean(axis=1)
    share = np.minimum(above, (measured <= error).mean(axis=1))
    spread = np.maximum(measured.std(axis=1, dtype=np.float64), 1e-12)
    found: Floats = np.maximum(share, ndtr(-np.abs(error - measured.mean(axis=1)) / spread))
    return found


def _possible(likely: Floats, level: float) -> Indices:
    """The worlds whose probability [worlds] makes the error no surprise; else the likeliest."""
    least = min(SURPRISE, (1 - level) / 2)
    return np.flatnonzero(likely >= min(least, likely.max()))


def _steadied(noise: Floats, calibrated: Floats) -> Floats:
    """The noise [bins, B], also where resamples cannot show all of it.

    A bin without a wrong (or a right) prediction has none in any resample. The variance of its hits
    is at least that of calibrated draws [bins, B], or that of one such prediction more, if this is
    smaller. Where resamples show nearly none of it, or hits are rare, the draws are taken.
    """
    found = noise.var(axis=1, dtype=np.float64)
    expected = calibrated.var(axis=1, dtype=np.float64)
    least = np.minimum(expected, found + 1)
    few = found < least
    drawn = few & ((found < HIDDEN * least) | ((expected < RARE) & (len(found) > BINS)))
    scale = np.ones_like(found)
    np.divide(least, np.where(drawn, expected, found), out=scale, where=few)
    steady: Floats = np.where(drawn[:, None], calibrated, noise) * np.sqrt(scale)[:, None]
    return steady.astype(noise.dtype)


def _candidates(gaps: Floats, noise: Floats) -> Floats:
    """True gaps [worlds, bins] for measured ones [bins] with noise [bins, B]."""
    spread = noise.std(axis=1, dtype=np.float64)
    size = np.full_like(spread, np.inf)
    np.divide(np.abs(gaps), spread, out=size, where=spread > 0)
    # In bins of few hits the noise is skewed: a gap has the size of a normal one as seldom.
    above = (np.abs(noise) >= (1 - ROUNDING) * np.abs(gaps)[:, None]).mean(axis=1)
    size = np.where((above > 0) & (spread > 0), -ndtri(above / 2), size)
    found = [gaps * (1 - np.minimum(1, by / np.maximum(size, 1e-12)) ** 2) for by in SHRUNK[:-1]]
    found.append(0 * gaps)
    small = size < -ndtri(BY_CHANCE / (2 * len(gaps)))
    # Of many bins the sum over all would drift from the measured one with one sign.
    signs = (1, -1) if len(gaps) == BINS else (np.sign(gaps),)
    for by in EVEN:
        found += [np.where(small, by * spread * sign, gaps) for sign in signs]
    return np.array(found)


def _ends(
    one: Floats,
    other: Floats,
    rows: Indices,
    columns: Indices,
    level: float,
    skewed: bool,
    tail: float | None = None,
) -> tuple[float, float]:
    """How far a measured value may lie above the true one, at least and at most, over pairs.

    Normal ends; and where the resamples are enough for them, their quantiles in the pairs whose
    normal ends lie furthest out. one, other: how far in each world, [worlds, B]; rows, columns: the
    worlds of each pair. skewed: the longer tail counts on both sides. tail: what each end may miss.
    """
    resamples = one.shape[1]
    mean, mean_of_other = one.mean(axis=1), other.mean(axis=1)
    means = (mean[rows] - mean_of_other[columns]).astype(np.float64)
    moved, moved_of_other = one - mean[:, None], other - mean_of_other[:, None]
    together = (moved @ moved_of_other.T)[rows, columns]
    variances = (moved**2).sum(axis=1)[rows] + (moved_of_other**2).sum(axis=1)[columns]
    variances = (variances - 2 * together).astype(np.float64) / resamples
    spreads = np.sqrt(np.maximum(variances, 0))
    if tail is None:
        known = (1 - level) / 2
        tail = known if skewed else _tail(float(np.ptp(means)), float(spreads.max()), level)
    reach = NORMAL.inv_cdf(1 - tail) * spreads
    low, high = float((means - reach).min()), float((means + reach).max())
    beyond = int(tail * resamples)
    if beyond < ENOUGH:
        return low, high
    for which in (np.argsort(means - reach)[:FURTHEST], np.argsort(means + reach)[-FURTHEST:]):
        far = one[rows[which]] - other[columns[which]]
        least, most = _ordered(far, beyond) - means[which]
        if skewed:
            most = np.maximum(most, -least)
            least = -most
        low = min(low, float((means[which] + least).min()))
        high = max(high, float((means[which] + most).max()))
    return low, high


def _ordered(values: Floats, beyond: int) -> Floats:
    """The values with so many resamples [..., B] below, and with so many above, [2, ...]."""
    found = np.partition(values, (beyond, values.shape[-1] - 1 - beyond), axis=-1)
    return np.stack([found[..., beyond], found[..., -1 - beyond]])


def _tail(length: float, spread: float, level: float) -> float:
    """What each end may miss, where the bias lies anywhere in a range of this length.

    Imbens & Manski 2004: (1 - level) / 2 where the bias is known, 1 - level where it may vary much.
    """
    if spread <= 0:
        return (1 - level) / 2

    low, high = 0.0, 10.0
    for _ in range(HALVINGS):
        reach = (low + high) / 2
        if NORMAL.cdf(reach + length / spread) - NORMAL.cdf(-reach) < level:
            low = reach
        else:
            high = reach
    return NORMAL.cdf(-high)
