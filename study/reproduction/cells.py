"""A cell of a table: what the paper published, beside the mean of our seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from study.uncertainty.intervals import LEVEL


@dataclass(frozen=True)
class Cell:
    """One method in one column, in its unit.

    mean ± half is the 95% interval of the mean of our seeds; sd and half need two. why: why there
    is no mean. The seeds that are left of a method that failed would be a selection.
    """

    published: float | None = None
    mean: float | None = None
    sd: float | None = None
    half: float | None = None
    why: str = ""


def cell_of(
    values: Sequence[float],
    published: float | None = None,
    split_variance: float = 0.0,
    failed: str = "",
) -> Cell:
    """The cell of our seeds' values. split_variance: as in `half_width`. failed: why a seed has no
    value."""
    if failed:
        return Cell(published, why=f"failed: {failed}")
    if bad := sum(not math.isfinite(value) for value in values):
        return Cell(published, why=f"no finite value in {bad} of {len(values)} seeds")
    if len(values) < 2:
        return Cell(published, values[0] if values else None)
    sd = statistics.stdev(values)
    half = half_width(sd, len(values), split_variance)
    return Cell(published, statistics.fmean(values), sd, half)


def half_width(sd: float, seeds: int, split_variance: float = 0.0) -> float:
    """t(seeds - 1) sqrt(sd^2 / seeds + split_variance).

    A temperature is fitted on validation images, and all seeds share one split: the variance of
    choosing it (`measured.resampled_means`) is not lowered by more seeds.
    """
    from scipy.special import stdtrit  # slow

    variance = sd**2 / seeds + split_variance
    return float(stdtrit(seeds - 1, (1 + LEVEL) / 2)) * math.sqrt(variance)
