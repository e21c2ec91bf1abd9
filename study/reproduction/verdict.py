"""Whether a published value is one that our seeds would have given.

All numbers of a column are in its unit (percent, nats, a temperature).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from study.uncertainty.intervals import LEVEL
from study.uncertainty.resampling import Floats

FEWEST_SEEDS = 3
ROUNDING = 1e-9  # of sums of floats, relative: a value at the very end of an interval is inside

AGREES = "agrees"
DIFFERS = "differs"
CANNOT = "cannot be judged"
FAILED = "failed"
ALONE = "ours alone"


@dataclass(frozen=True)
class Cell:
    """One method in one column: our value of each seed, and what the paper published.

    split_variance: of the mean of `values` over resamples of the validation split, which all seeds
    share (`measured.resampled_means`); 0 where no temperature is fitted.
    doubts: why it cannot be judged, whatever the values are: short form, other data than the
    paper's, an uncertain source, an unknown protocol. failed: why a seed has no value. The seeds
    that are left would be a selection, so no verdict is made of them.
    """

    values: tuple[float, ...]
    published: float | None = None
    split_variance: float = 0.0
    doubts: tuple[str, ...] = ()
    failed: str = ""


@dataclass(frozen=True)
class Verdict:
    """One of five words, and what it comes from: `reasons` say why it is not judged.

    mean, sd: of our seeds, where they are finite; sd needs two. half: mean ± half is where the
    published value would lie in 95 of 100 papers like it; in a column without published values,
    the 95% interval of our mean. distance: mean - published.
    """

    word: str
    reasons: tuple[str, ...] = ()
    mean: float | None = None
    sd: float | None = None
    half: float | None = None
    distance: float | None = None

    @property
    def is_judged(self) -> bool:
        return self.word in (AGREES, DIFFERS)


def own_half_width(sd: float, seeds: int, split_variance: float = 0.0) -> float:
    """Of the interval of our own mean: t(seeds - 1) sqrt(sd^2 / seeds + split_variance)."""
    from scipy.special import stdtrit  # slow

    variance = sd**2 / seeds + split_variance
    return float(stdtrit(seeds - 1, (1 + LEVEL) / 2)) * math.sqrt(variance)


def half_width(
    sd: Floats | float,
    seeds: int,
    runs: int = 1,
    split_variance: Floats | float = 0.0,
    rounding: float = 0.0,
) -> Floats:
    """t(seeds - 1) sqrt(sd^2 (1/seeds + 1/runs) + 2 split_variance) + rounding.

    The mean of the paper's runs varies as ours does. Both were measured on the same test images, so
    nothing is added for sampling them. A temperature is fitted on validation images: all our seeds
    share one split, the paper's runs had another, so the variance of choosing a split, which
    more seeds do not lower, counts once for ours and once for theirs.
    """
    from scipy.special import stdtrit  # slow

    variance = np.square(sd) * (1 / seeds + 1 / runs) + 2 * np.asarray(split_variance)
    reach: Floats = stdtrit(seeds - 1, (1 + LEVEL) / 2) * np.sqrt(variance) + rounding
    return reach


def typical_sd(sds: Floats) -> Floats:
    """The larger of each cell's sd and the median sd of its column. sds: [cells, ...].

    What decides whether a cell is judged. By their own sd alone, the cells whose few seeds happen
    to lie close would be picked, and their intervals are too short: they cover 90% of 95.
    """
    larger: Floats = np.maximum(sds, np.median(sds, axis=0))
    return larger


def rounding_of(digits: int, step: float | None = None) -> float:
    """Half a unit of the last digit, or half a step of the grid that the values lie on."""
    return (step or 10.0**-digits) / 2


def judge_column(
    cells: Mapping[str, Cell], runs: int = 1, rounding: float = 0.0
) -> dict[str, Verdict]:
    """The verdict of each cell of one network's column, by row.

    runs: of the paper behind each number. rounding: as `rounding_of`.
    """
    known = {row: cell for row, cell in cells.items() if len(cell.values) > 1 and _finite(cell)}
    sds = np.array([statistics.stdev(cell.values) for cell in known.values()])
    typical = dict(zip(known, typical_sd(sds).tolist(), strict=True)) if known else {}
    published = [cell.published for cell in cells.values() if cell.published is not None]
    between = statistics.stdev(published) if len(published) > 1 else None

    def judge(row: str, cell: Cell) -> Verdict:
        if cell.failed:
            return Verdict(FAILED, (cell.failed,))
        if not _finite(cell):
            bad = sum(not math.isfinite(value) for value in cell.values)
            found = f"no finite value in {bad} of {len(cell.values)} seeds"
            return Verdict(ALONE if cell.published is None else CANNOT, (found,))
        reasons = [*cell.doubts, *_too_few(cell)]
        if row in typical:
            wide = half_width(typical[row], len(cell.values), runs, cell.split_variance, rounding)
            reasons += _too_wide(float(wide), between)
        if not published:
            return _alone(cell)
        return _verdict(cell, runs, rounding, reasons)

    return {row: judge(row, cell) for row, cell in cells.items()}


def differing_by_chance(verdicts: Iterable[Verdict]) -> float:
    """How many of the judged cells would differ if every protocol were the paper's: 5%."""
    return (1 - LEVEL) * sum(verdict.is_judged for verdict in verdicts)


def _finite(cell: Cell) -> bool:
    return not cell.failed and all(map(math.isfinite, cell.values))


def _too_few(cell: Cell) -> list[str]:
    seeds = len(cell.values)
    if seeds >= FEWEST_SEEDS:
        return []
    return [f"{seeds} seed{'s' * (seeds != 1)}, fewer than {FEWEST_SEEDS}"]


def _too_wide(half: float, between: float | None) -> list[str]:
    if between is None:
        return ["the paper has no second method here to compare its spread with"]
    if half <= between:
        return []
    return [f"the half-width is above {between:.3g}, the sd between the paper's methods"]


def _alone(cell: Cell) -> Verdict:
    """Of a column in which the paper printed nothing."""
    mean = statistics.fmean(cell.values) if cell.values else None
    if len(cell.values) < 2:
        return Verdict(ALONE, (), mean)
    sd = statistics.stdev(cell.values)
    half = own_half_width(sd, len(cell.values), cell.split_variance)
    return Verdict(ALONE, (), mean, sd, half)


def _verdict(cell: Cell, runs: int, rounding: float, reasons: list[str]) -> Verdict:
    seeds = len(cell.values)
    mean = statistics.fmean(cell.values) if seeds else None
    sd = None
    half = None
    if seeds > 1:
        sd = statistics.stdev(cell.values)
        half = float(half_width(sd, seeds, runs, cell.split_variance, rounding))
    if cell.published is None:
        return Verdict(ALONE, (), mean, sd, half)
    distance = None if mean is None else mean - cell.published
    if reasons or distance is None or half is None:
        return Verdict(CANNOT, tuple(reasons), mean, sd, half, distance)
    slack = ROUNDING * max(abs(cell.published), half)
    word = AGREES if abs(distance) <= half + slack else DIFFERS
    return Verdict(word, (), mean, sd, half, distance)
