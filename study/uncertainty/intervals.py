"""From resampled values to intervals. Their coverage in simulations: docs/uncertainty.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from study.uncertainty.resampling import CALIBRATION, RESAMPLED, Floats, Sums
from trainables.metrics import describe

LEVEL = 0.95
SIGNIFICANCE = 0.05  # of the test for perfect calibration, at most
ROUNDING = 1e-6  # summation order in float32
FRACTIONS = [name for name in RESAMPLED if describe(name).kind == "fraction"]
# With fewer wrong predictions than this, resamples do not show what one more would cost.
FEWEST_WRONG = 5
# A cell of classwise ECE in which the model expects a smaller variance of hits counts as rare.
FEWEST_SURPRISES = 2.0
# Standard errors by which gaps are moved to find the true errors that fit a measured one, and bisections of that range.
REACH, HALVINGS = 6.0, 10


class Interval(NamedTuple):
    """A metric with its interval; a calibration error's estimate, biased upward, may lie above it."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Resampled:
    """One set of predictions: its sums, those of its B resamples, and those of B draws of calibrated labels."""

    sample: Sums  # one column, float64
    resamples: Sums
    calibrated: Sums

    def estimates(self, wanted: Collection[str] = RESAMPLED) -> dict[str, float]:
        """The wanted metrics, as defined in trainables.metrics."""
        return {name: float(value[0]) for name, value in self.sample.metrics(wanted).items()}


def intervals(
    found: Resampled, level: float = LEVEL, wanted: Collection[str] = RESAMPLED
) -> dict[str, Interval]:
    """The interval of each wanted metric that is defined for the sample and all its resamples.

    With fewer than FEWEST_WRONG wrong predictions, fractions still have an interval, sums of gaps one widened for
    wrong predictions that may be missing, and metrics that one wrong prediction can move without bound have none.
    """
    values, calibrated = found.resamples.metrics(wanted), found.calibrated.calibration(wanted)
    intervals = {}
    for name, estimate in found.estimates(wanted).items():
        if name in FRACTIONS:
            intervals[name] = Interval(estimate, *wilson(estimate, found.sample.samples, level))
        elif math.isinf(unseen(found.sample, name, level)):
            continue
        elif name in values and name in CALIBRATION:
            low, high = _of_calibration_error(name, found, values[name], level)
            high = min(1.0, max(high, estimate + unseen(found.sample, name, level)))
            as_large = np.sum(calibrated[name] >= estimate - ROUNDING)
            rejected = (1 + as_large) / (1 + len(calibrated[name])) <= significance(level)
            intervals[name] = Interval(estimate, low if rejected else 0.0, high)
        elif name in values:
            intervals[name] = Interval(estimate, *percentile(values[name], level))
    return intervals


def percent(level: float) -> str:
    """`95%`: a level, as captions and headings name it."""
    return f"{100 * level:g}%"


def significance(level: float) -> float:
    """Of the test for perfect calibration. An interval above 95% must contain a true 0 more often than a 5% test."""
    return min(SIGNIFICANCE, 1 - level)


def unseen(sample: Sums, name: str, level: float = LEVEL) -> float:
    """How much larger a metric may truly be through wrong predictions missing from the sample; 0 from FEWEST_WRONG on.

    A wrong prediction moves 1/N from the hits of one bin, or from one class to another; its cost in NLL, for example,
    is unbounded.
    """
    wrong = round(sample.samples - float(sample.scores[0, 0]))
    if wrong >= FEWEST_WRONG or name in FRACTIONS:
        return 0.0
    share = wrong / sample.samples
    more = wilson(share, sample.samples, level)[1] - share
    return {"ece": more, "adaptive_ece": more, "classwise_ece": 2 * more / sample.classes}.get(
        name, math.inf
    )


def wilson(share: float, samples: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of a fraction of correct predictions; valid even if all, and so all resamples, are. Wilson 1927."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = share + z**2 / (2 * samples)
    reach = z * (share * (1 - share) / samples + (z / (2 * samples)) ** 2) ** 0.5
    scale = 1 + z**2 / samples
    return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)


def percentile(values: Floats, level: float = LEVEL) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def basic(estimate: float, values: Floats, level: float = LEVEL) -> tuple[float, float]:
    """2 x estimate - quantile: resamples exceed the estimate by as much as the estimate exceeds the truth."""
    low, high = percentile(values, level)
    return 2 * estimate - high, 2 * estimate - low


def of_difference(
    name: str, estimate: float, values: Floats, level: float = LEVEL
) -> tuple[float, float]:
    """Interval of the difference of two trials' metrics: percentiles; for calibration errors, the basic one as well.

    The difference of two errors cancels part of their bias, not all: either interval alone covers too little.
    """
    low, high = percentile(values, level)
    if name not in CALIBRATION:
        return low, high
    other_low, other_high = basic(estimate, values, level)
    return min(low, other_low), max(high, other_high)


def _of_calibration_error(
    name: str, found: Resampled, values: Floats, level: float
) -> tuple[float, float]:
    """The basic interval, widened to all true errors that fit the measured one; within [0, 1]."""
    sample = found.sample
    gaps: Floats = sample.gaps(name).astype(values.dtype)
    noise: Floats = found.resamples.gaps(name) - gaps

    def ends(gaps: Floats, noise: Floats, values: Floats) -> tuple[float, float]:
        estimate = float(sample.calibration_error(name, gaps)[0])
        low, high = basic(estimate, values, level)
        least, most = _fitting(
            gaps,
            noise,
            lambda moved: sample.calibration_error(name, moved),
            lambda moved: float(sample.calibration_error(name, moved, debias=False)[0]),
            estimate,
            level,
        )
        return min(low, least), max(high, most)

    low, high = ends(gaps, noise, values)
    if name == "classwise_ece":
        gaps, noise = _with_rare_cells_as_one(found, gaps), _with_rare_cells_as_one(found, noise)
        low, _ = ends(gaps, noise, sample.calibration_error(name, gaps + noise))
    return max(0.0, low), min(1.0, high)


def _with_rare_cells_as_one(found: Resampled, values: Floats) -> Floats:
    """Class gaps [cells, B], with one sum for all cells whose labels, by the model, hardly vary.

    Resamples of a cell without a surprising label never have one: they show too little noise, and too much of the
    measured error seems true. The error over a coarser partition is smaller, never larger.
    """
    rare = found.calibrated.class_gaps.var(axis=1) < FEWEST_SURPRISES
    return np.vstack([values[~rare], values[rare].sum(axis=0, keepdims=True)])


def _fitting(
    gaps: Floats,
    noise: Floats,
    measured: Callable[[Floats], Floats],
    true: Callable[[Floats], float],
    estimate: float,
    level: float,
) -> tuple[float, float]:
    """The smallest and largest true error consistent with the measured one: an inverted test.

    Hypotheses move every gap by x standard errors away from 0, or towards it but never across. Under each, the
    measured error is that of its gaps plus the resamples' noise. gaps: [bins, 1]; noise: [bins, B].
    """
    spread = noise.std(axis=1, keepdims=True)
    signs = np.where(gaps < 0, -1, 1).astype(gaps.dtype)

    def world(x: float) -> Floats:
        moved: Floats = signs * np.maximum(np.abs(gaps) + gaps.dtype.type(x) * spread, 0)
        return moved

    def first(holds: Callable[[Floats], bool]) -> float:
        """The true error of the smallest shift where it holds; it holds for all larger ones."""
        low, high = -REACH, REACH
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if holds(measured(world(middle) + noise)) else (middle, high)
        return true(world((low + high) / 2))

    tail = (1 - level) / 2
    least = first(lambda errors: bool(np.mean(errors >= estimate) > tail))
    most = first(lambda errors: bool(np.mean(errors <= estimate) <= tail))
    return least, most
