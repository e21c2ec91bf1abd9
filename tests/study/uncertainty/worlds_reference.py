"""Intervals of calibration errors by their slow definition: world by world, pair by pair.

Plain NumPy and SciPy, from docs/uncertainty.md (Calibration errors) as it was at 1a2c335a, never
from the code that is checked.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from tests.study.uncertainty.grouped_reference import BINS, mass_bin, width_bin

SHRUNK = (0.5, 1, 1.5, 2, 2.5, 3, 4)
EVEN = (0.25, 0.5, 0.75, 1, 1.25, 1.5)
CHANCE = 0.68  # gaps that are as large as a significant one by chance
SURPRISE = 0.015
APART = 0.001  # of resamples, in which the gaps of two networks are further apart
ALIKE = 0.4
MANY_BINS = 1500
HIDDEN = 0.01  # of a variance
ROUNDING = 1e-4  # equal values that were added up in another order may differ by this share
STILL = 1e-3  # what never varies deviates less


class Network(NamedTuple):
    """What is measured of one network by one metric. Gaps are sums over samples, not means."""

    gaps: np.ndarray  # [bins]
    noise: np.ndarray  # [bins, B], steadied
    weights: np.ndarray  # [bins]: what a gap of 1 adds to the error
    largest: bool  # the error is the largest |gap|, not their sum
    classes: int  # of classwise ECE; 1 for the other errors
    groups: bool

    def error(self, gaps):
        """The error of gaps [bins], or of each column of [bins, B]."""
        parts = (np.abs(gaps).T * self.weights).T
        return parts.max(axis=0) if self.largest else parts.sum(axis=0)


# ---- gaps and their noise ------------------------------------------------------------------------


def summed(cells, values, number):
    """The sum of values [N] or [N, B] in each cell."""
    return np.array([values[cells == cell].sum(axis=0) for cell in range(number)])


def drawn_labels(probs, chances):
    """Labels [N, B] of a calibrated model: through the classes from the most likely on, the first
    whose cumulated probability exceeds the uniform number."""
    found = np.empty(chances.shape, dtype=int)
    for row, uniforms in enumerate(chances):
        order = np.argsort(-probs[row], kind="stable")
        exceeds = np.cumsum(probs[row][order])[:, None] > uniforms
        found[row] = order[np.where(exceeds[-1], exceeds.argmax(axis=0), -1)]
    return found


def steadied(noise, drawn):
    """The noise [bins, B] with bins that hardly vary in resamples made to vary.

    drawn: [bins, B], the gaps of labels drawn from the model's probabilities.
    """
    steady = noise.copy()
    pairs = zip(noise.var(axis=1), drawn.var(axis=1), strict=True)
    for row, (variance, expected) in enumerate(pairs):
        wanted = min(expected, variance + 1)
        rare = len(noise) > BINS and expected < 2
        if variance < wanted and (rare or variance < HIDDEN * wanted):
            steady[row] = drawn[row] * np.sqrt(wanted / expected)
        elif variance < wanted:
            steady[row] *= np.sqrt(wanted / variance)
    return steady


def network(metric, probs, labels, draws):
    """The gaps of a metric and their noise. draws: `Draws`, of samples or of groups."""
    rows, classes = probs.shape
    counts = draws.weights.astype(float)
    if draws.groups is not None:
        counts = counts[draws.groups]
    if metric == "classwise_ece":
        number = BINS * classes
        predicted = probs.T.ravel()
        bins = width_bin(predicted) + BINS * np.repeat(np.arange(classes), rows)
        residuals = np.eye(classes)[labels].T.ravel() - predicted
        counts = np.tile(counts, (classes, 1))
    else:
        confidence = probs.max(axis=1)
        hits = (probs.argmax(axis=1) == labels).astype(float)
        bins = mass_bin(confidence) if metric == "adaptive_ece" else width_bin(confidence)
        number, predicted, residuals = BINS, confidence, hits - confidence
    gaps = summed(bins, residuals, number)
    noise = summed(bins, residuals[:, None] * counts, number) - gaps[:, None]
    if draws.groups is None and number <= MANY_BINS:
        chosen = drawn_labels(probs, draws.chances)
        if metric == "classwise_ece":
            hit = np.concatenate([chosen == label for label in range(classes)])
        else:
            hit = chosen == probs.argmax(axis=1)[:, None]
        noise = steadied(noise, summed(bins, hit - predicted[:, None], number))
    sizes = np.array([max(np.sum(bins == cell), 1) for cell in range(number)])
    many = classes if metric == "classwise_ece" else 1
    weights = 1 / sizes if metric == "mce" else np.full(number, 1 / rows / many)
    return Network(gaps, noise, weights, metric == "mce", many, draws.groups is not None)


# ---- worlds --------------------------------------------------------------------------------------


def size(gap, noise):
    """How many standard errors a gap has, by the share of the noise [B] that is as large."""
    share = np.mean(np.abs(noise) >= abs(gap) * (1 - ROUNDING))
    if share > 0:
        return norm.isf(share / 2)
    return abs(gap) / noise.std() if noise.std() > 0 else np.inf


def candidates(one):
    """Every world's true gaps, [worlds, bins]."""
    sizes = np.array([size(*each) for each in zip(one.gaps, one.noise, strict=True)])
    significant = 2 * norm.sf(sizes) * len(one.gaps) < CHANCE
    found = [one.gaps]
    for k in SHRUNK:
        left = [1 - min(1, (k / t) ** 2) if t > 0 else 0 for t in sizes]
        found.append(one.gaps * left)
    found.append(0 * one.gaps)
    for a in EVEN:
        signs = (np.sign(one.gaps),) if len(one.gaps) > BINS else (1, -1)
        for sign in signs:
            found.append(np.where(significant, one.gaps, sign * a * one.noise.std(axis=1)))
    return np.array(found)


def excess(one, world):
    """How far what is measured in a world [bins] lies above its true error, [B]."""
    return one.error(world[:, None] + one.noise) - one.error(world)


class Model(NamedTuple):
    """One network, or several that a mean is taken of, in each world."""

    networks: list
    worlds: np.ndarray  # [networks, worlds, bins]

    @property
    def error(self):
        return np.mean([one.error(one.gaps) for one in self.networks])

    @property
    def groups(self):
        return self.networks[0].groups

    def excess(self, worlds):
        """In the world [networks, bins], [B]."""
        return np.mean([excess(*each) for each in zip(self.networks, worlds, strict=True)], axis=0)

    def true(self, worlds):
        return np.mean([one.error(m) for one, m in zip(self.networks, worlds, strict=True)])

    def likely(self, world):
        """How seldom an error as large, or one as small, as the measured one is in a world: of the
        resamples, or of a normal distribution like theirs."""
        seen = self.excess(world) + self.true(world)
        as_large = np.mean(seen >= self.error)
        as_small = np.mean(seen <= self.error)
        deviations = abs(self.error - seen.mean()) / max(seen.std(), 1e-12)
        return max(min(as_large, as_small), norm.sf(deviations))

    def possible(self, level):
        """The worlds [networks, bins] in which the measured error is no surprise."""
        worlds = list(self.worlds.transpose(1, 0, 2))
        kept = [world for world in worlds if self.likely(world) >= least(level)]
        return kept or [max(worlds, key=self.likely)]


def least(level):
    """The probability of an error in a possible world."""
    return min(SURPRISE, (1 - level) / 2)


def model(*networks):
    return Model(list(networks), np.array([candidates(one) for one in networks]))


# ---- intervals -----------------------------------------------------------------------------------


def ends(excesses, reach, both_tails):
    """The lowest and the highest excess over all worlds or pairs [B], `reach` deviations out."""
    means = [each.mean() for each in excesses]
    lows = [each.mean() - reach * each.std() for each in excesses]
    highs = [each.mean() + reach * each.std() for each in excesses]
    low, high = min(lows), max(highs)
    resamples = len(excesses[0])
    beyond = int(norm.sf(reach) * resamples)
    if beyond < 5:
        return low, high

    def tails(which):
        ordered = np.sort(excesses[which])
        below, above = means[which] - ordered[beyond], ordered[-1 - beyond] - means[which]
        return (max(below, above),) * 2 if both_tails else (below, above)

    low = min([low] + [means[which] - tails(which)[0] for which in np.argsort(lows)[:3]])
    high = max([high] + [means[which] + tails(which)[1] for which in np.argsort(highs)[-3:]])
    return low, high


def interval(one, level):
    """Of one model's error."""
    excesses = [one.excess(world) for world in one.possible(level)]
    low, high = ends(excesses, norm.isf((1 - level) / 2), one.groups)
    return max(one.error - high, 0), max(one.error - low, 0)


def cumulated(one):
    """The mean noise of the networks, added up from the lowest bin on, [bins, B]."""
    return np.cumsum(np.mean([found.noise for found in one.networks], axis=0), axis=0)


def alike(one, other):
    """Whether the noise of two models is so much alike that one may be put beside the other."""
    noise = cumulated(one), cumulated(other)
    apart = (noise[0] - noise[1]).var(axis=1).sum()
    few = len(one.networks[0].gaps) <= MANY_BINS
    return few and apart <= ALIKE * sum(each.var(axis=1).sum() for each in noise)


def difference(one, other, level):
    """Of one's error minus the other's."""
    residual = []
    for each in (one, other):
        gaps = np.array([found.gaps for found in each.networks])
        residual.append(
            [np.cumsum(np.mean(gaps - world, axis=0)) for world in each.possible(level)]
        )
    apart = cumulated(one) - cumulated(other)
    deviation = np.maximum(apart.std(axis=1), ROUNDING)
    varies = np.maximum(*(cumulated(each).std(axis=1) for each in (one, other))) >= STILL

    def distance(values):
        """The sum over bins of squares of standard errors. Over all classes the gaps add up to 0:
        a sum that does not vary is left out."""
        return ((values / deviation)[varies] ** 2).sum()

    usual = np.sort([distance(each) for each in apart.T])
    limit = usual[len(usual) - 1 - int(APART * len(usual))]
    first = [one.excess(world) for world in one.possible(level)]
    second = [other.excess(world) for world in other.possible(level)]
    every, pairs = [], []
    for a, left in zip(first, residual[0], strict=True):
        for b, right in zip(second, residual[1], strict=True):
            every.append(a - b)
            if distance(left - right) <= limit * (1 + ROUNDING):
                pairs.append(a - b)
    pairs = pairs or every
    if alike(one, other) and len(one.networks) == len(other.networks):
        pairs += beside(one, other, level)
        pairs += [-each for each in beside(other, one, level)]
    reach = norm.isf((1 - level) / 2)
    if not one.groups:
        reach = imbens_manski(pairs, level)
    low, high = ends(pairs, reach, one.groups)
    return one.error - other.error - high, one.error - other.error - low


def beside(one, other, level):
    """The excess of one less that of the other, with one in a possible world of the lowest, or of
    the highest, mean excess, and the gaps of the other as far from one's as measured."""
    possible = sorted(one.possible(level), key=lambda world: one.excess(world).mean())
    found = []
    for world in (possible[0], possible[-1]):
        moved = [
            true + (its.gaps - own.gaps)
            for true, own, its in zip(world, one.networks, other.networks, strict=True)
        ]
        found.append((other.likely(moved), one.excess(world) - other.excess(moved)))
    needed = min(least(level), max(likely for likely, _ in found))
    return [excess for likely, excess in found if likely >= needed]


def imbens_manski(excesses, level):
    """C with Phi(C + L / s) - Phi(-C) = level."""
    length = np.ptp([each.mean() for each in excesses])
    spread = max(each.std() for each in excesses)
    if spread == 0:
        return norm.isf((1 - level) / 2)
    return brentq(lambda c: norm.cdf(c + length / spread) - norm.cdf(-c) - level, 0, 9)
