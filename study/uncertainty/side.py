"""One trial of a comparison of two, and what few discordant samples can tell of a fraction.

Resamples of two trials that are right on the same samples all have a difference of 0, and those of
few samples in which they differ vary too little: docs/why/how-certain.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from study.schema.objective import plain_name
from study.uncertainty.intervals import (
    FEWEST_WRONG,
    FRACTIONS,
    Interval,
    percentile,
    unseen,
    widened,
    wilson,
)
from study.uncertainty.resampling import Floats, Indices, SampleTerms, Sums
from study.uncertainty.worlds import Worlds
from trainables.metrics import describe
from trainables.outputs.predictions import Predictions


@dataclass(frozen=True)
class Side:
    """A trial's metrics, those of its resamples, its sums, and its hits as `hits_of` has them.

    worlds: of its calibration errors.
    """

    estimates: dict[str, float]
    values: dict[str, Floats]
    sample: Sums
    hits: dict[str, Floats]
    worlds: dict[str, Worlds]

    def less(self, other: Side, metric: str, level: float) -> Interval:
        """The metric minus that of the other, whose wrong predictions may be missing too."""
        name = plain_name(metric)
        estimate = self.estimates[metric] - other.estimates[metric]
        wide = widened(level, self.sample)
        if metric in self.worlds:
            low, high = self.worlds[metric].less(other.worlds[metric], wide)
        else:
            low, high = percentile(self.values[metric] - other.values[metric], wide)
        if name in FRACTIONS and self.estimates != other.estimates:  # equal ones are one model
            more = self.hits[name] - other.hits[name]
            ahead = int((more > 0).sum())
            behind = int((more < 0).sum())
            if ahead + behind < FEWEST_WRONG:
                least, most = of_discordant(ahead, behind, len(more), level)
                low = min(low, least)
                high = max(high, most)
        most = describe(name).largest or math.inf
        low -= unseen(other.sample, name, level)
        high += unseen(self.sample, name, level)
        return Interval(estimate, max(low, -most), min(high, most))


def hits_of(predictions: Predictions, groups: Indices | None) -> dict[str, Floats]:
    """By fraction, what each sample adds to it, [N], or each of these groups, [G]. No temperature
    changes them."""
    arrays = predictions.arrays
    logits = arrays.logits.astype(np.float64)
    table = SampleTerms.of(logits, arrays.labels, classwise=False, given=arrays.given)
    right, within = table.scores[:, :2].T
    found = {"accuracy": right, "error": 1 - right, "top5_accuracy": within}
    if groups is None:
        return found
    summed = {name: np.bincount(groups, each) for name, each in found.items()}
    return {name: each.astype(float) for name, each in summed.items()}


def of_discordant(ahead: int, behind: int, samples: int, level: float) -> tuple[float, float]:
    """Interval of a difference of two fractions of the same samples, from the discordant ones.

    ahead, behind: samples that count for the first alone, and for the second alone. Wilson's limits
    of each share, combined by squares (Newcombe 1998; Zou & Donner 2008): without a discordant
    sample, 0 and to either side Wilson's limit of a share of 0, about 3.8 of N at 95%.
    """
    first = ahead / samples
    second = behind / samples
    least, most = wilson(first, samples, level)
    fewest, largest = wilson(second, samples, level)
    low = math.hypot(first - least, largest - second)
    high = math.hypot(most - first, second - fewest)
    return first - second - low, first - second + high
