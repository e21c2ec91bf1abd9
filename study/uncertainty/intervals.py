"""Intervals from resampled values. Their coverage in simulations: docs/why/how-certain.md."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from study.uncertainty.resampling import CALIBRATION, RESAMPLED, Floats, Sums
from study.uncertainty.worlds import Resampled, Worlds
from trainables.metrics import describe

LEVEL = 0.95
# A draw of smooth ECE would have a bandwidth of its own, which takes too long to find: at the
# sample's it is no floor.
WITH_FLOOR = tuple(name for name in CALIBRATION if name != "smooth_ece")
FRACTIONS = [name for name in RESAMPLED if describe(name).kind == "fraction"]
# With fewer wrong predictions than this, or groups with one, resamples do not show what one more
# would cost.
FEWEST_WRONG = 5


class Floor(NamedTuple):
    """The error that a calibrated model with these confidences would measure on as many samples.

    Mean and range over draws of calibrated labels, at the level of the interval beside it. Never
    subtracted from an error: noise adds less to gaps that are there.
    """

    mean: float
    low: float
    high: float


class Interval(NamedTuple):
    """A metric with its interval. A calibration error, biased upward, may lie above its own."""

    estimate: float
    low: float
    high: float

    @property
    def floor(self) -> Floor | None:
        """None: it is no calibration error."""
        return None

    def ends(self) -> dict[str, object]:
        """The interval for JSON, without the estimate; `floor` is there where it has one."""
        found: dict[str, object] = {"low": self.low, "high": self.high}
        if self.floor is not None:
            found["floor"] = self.floor._asdict()
        return found


class CalibrationInterval(Interval):
    """A calibration error with its interval, as any other, and its floor."""

    _floor: Floor

    def __new__(cls, estimate: float, low: float, high: float, floor: Floor) -> CalibrationInterval:
        made = super().__new__(cls, estimate, low, high)
        made._floor = floor
        return made

    @property
    def floor(self) -> Floor:
        return self._floor


def intervals(
    found: Resampled, level: float = LEVEL, wanted: Collection[str] = RESAMPLED
) -> dict[str, Interval]:
    """The interval of each wanted metric that is defined for the sample and all its resamples.

    With fewer than FEWEST_WRONG wrong predictions, fractions still have an interval, sums of gaps
    one widened for wrong predictions that may be missing, and metrics that one wrong prediction can
    move without bound have none.
    """
    values = found.resamples.metrics(wanted)
    calibrated = found.calibrated.calibration(wanted)
    wide = widened(level, found.sample)
    intervals = {}
    for name, estimate in found.estimates(wanted).items():
        if name in FRACTIONS:
            intervals[name] = _of_fraction(name, estimate, found, values[name], level)
        elif math.isinf(unseen(found.sample, name, level)) or name not in values:
            continue
        elif name in CALIBRATION:
            intervals[name] = _of_error(name, estimate, found, calibrated[name], level)
        else:
            intervals[name] = Interval(estimate, *percentile(values[name], wide))
    return intervals


def _of_fraction(
    name: str, estimate: float, found: Resampled, values: Floats, level: float
) -> Interval:
    """The interval of a fraction of samples, or of samples in groups, which are not independent.

    Resamples of groups, and where few groups have a row on one of its sides, all that as many
    samples as groups would leave possible.
    """
    groups = found.sample.groups
    if groups is None:
        return Interval(estimate, *wilson(estimate, int(found.sample.samples), level))
    low, high = percentile(values, widened(level, found.sample))
    if min(groups.sides[name]) >= FEWEST_WRONG:
        return Interval(estimate, low, high)
    least, most = wilson(estimate, groups.total, level)
    return Interval(estimate, min(low, least), max(high, most))


def _of_error(
    name: str, estimate: float, found: Resampled, calibrated: Floats, level: float
) -> Interval:
    """The interval of a calibration error, and its floor from what calibrated draws measure."""
    low, high = Worlds.of(name, found).interval(widened(level, found.sample))
    missing = unseen(found.sample, name, level)  # it may as well make up for a gap
    low = max(0.0, low - missing)
    high = min(1.0, max(high, estimate + missing))
    if name not in WITH_FLOOR:
        return Interval(estimate, low, high)
    return CalibrationInterval(estimate, low, high, floor_of(calibrated, level))


def floor_of(values: Floats, level: float = LEVEL) -> Floor:
    """The floor from the error of each draw of calibrated labels, [B]."""
    return Floor(float(values.mean(dtype=np.float64)), *percentile(values, level))


def mean_floor(floors: Sequence[Floor]) -> Floor:
    """The floor of a mean over seeds: the mean of the networks' floors."""
    return Floor(*np.mean(floors, axis=0).tolist())


def floor_note(level: float = LEVEL) -> str:
    """The sentence that captions say of a floor."""
    return (
        "floor: what a perfectly calibrated model with these confidences would measure on as many"
        f" samples (mean and {percent(level)} range); it is not subtracted, since a miscalibrated"
        " model's bias is smaller."
    )


def percent(level: float) -> str:
    """`95%`: a level, as captions and headings name it."""
    return f"{100 * level:g}%"


def unseen(sample: Sums, name: str, level: float = LEVEL) -> float:
    """How much larger a metric may truly be, through wrong predictions missing from the sample.

    0 from FEWEST_WRONG on. A wrong prediction moves 1/N from the hits of one bin, or from one class
    to another; its cost in NLL, for example, is unbounded. Of groups, those with a wrong prediction
    count.
    """
    count = int(sample.samples)
    wrong = round(count - float(sample.scores[0, 0]))
    if sample.groups is not None:
        count = sample.groups.total
        wrong = sample.groups.wrong
    if wrong >= FEWEST_WRONG or name in FRACTIONS:
        return 0.0
    share = wrong / count
    more = wilson(share, count, level)[1] - share
    if name in ("ece", "adaptive_ece", "smooth_ece"):
        return more
    return 2 * more / sample.classes if name == "classwise_ece" else math.inf


def wilson(share: float, samples: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of a fraction correct; valid even if all, and so all resamples, are. Wilson 1927."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = share + z**2 / (2 * samples)
    reach = z * (share * (1 - share) / samples + (z / (2 * samples)) ** 2) ** 0.5
    scale = 1 + z**2 / samples
    return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)


def percentile(values: Floats, level: float = LEVEL) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def widened(level: float, sample: Sums) -> float:
    """The level of the quantiles that contain the truth as often as `level` says.

    Resamples of n groups vary too little: by (n - 1) / n, and as a normal distribution does where
    Student's t has n - 1 degrees of freedom (Hesterberg 2015, the expanded percentile interval).
    """
    if sample.groups is None:
        return level
    n = sample.groups.effective
    reach = math.sqrt(n / (n - 1)) * float(stdtrit(n - 1, (1 + level) / 2))
    return 2 * NormalDist().cdf(reach) - 1
