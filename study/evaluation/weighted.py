"""Metrics of samples that count by weights: those that are sums over samples or over bins of them.

A weighted mean is the sum of w x over that of w. Fractions have Wilson's interval for Kish's number
of samples, (sum w)^2 / sum w^2; NLL and Brier score, and all where samples belong together, the
percentiles of resamples. The bias of a weighted calibration error is not known: it has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from study.uncertainty.intervals import FRACTIONS, Interval, percentile, wilson
from study.uncertainty.resampling import SCORES, Draws, Floats, SampleTerms
from trainables.kinds import FEWEST
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

WEIGHTED = (*SCORES, "ece", "mce", "classwise_ece")


def check_weighted(names: Sequence[str]) -> None:
    """Raise FieldError for a metric without a weighted form."""
    if lacking := [name for name in names if name not in WEIGHTED]:
        found = f"{lacking[0]} has no weighted form"
        raise FieldError("weights", found, f"Those with one: {', '.join(WEIGHTED)}.")


def weighted_values(
    predictions: Predictions, weights: Floats, names: Sequence[str]
) -> dict[str, float]:
    """The metrics that are defined. weights: [N], >= 0, not all 0."""
    table = _table(predictions, "classwise_ece" in names)
    found = table.sums(_scaled(weights[:, None])).metrics(names)
    return {name: float(found[name][0]) for name in names if name in found}


def weighted_intervals(
    predictions: Predictions, weights: Floats, values: dict[str, float], draws: Draws, level: float
) -> dict[str, Interval]:
    """The intervals of those `values` that are means."""
    means = [name for name in values if name in SCORES]
    effective = int(weights.sum() ** 2 / (weights @ weights))
    if effective < FEWEST:
        return {}
    counts = draws.counts if draws.groups is None else draws.counts[draws.groups]
    resampled = _table(predictions, False).sums(_scaled(counts * weights[:, None])).metrics(means)
    found = {}
    for name in means:
        ends = percentile(resampled[name], level)
        if name in FRACTIONS and draws.groups is None:
            ends = wilson(values[name], effective, level)
        found[name] = Interval(values[name], *ends)
    return found


def _table(predictions: Predictions, classwise: bool) -> SampleTerms:
    logits = predictions.logits.double().numpy()
    arrays = predictions.arrays
    return SampleTerms.of(logits, arrays.labels, classwise, given=arrays.given)


def _scaled(weights: Floats) -> Floats:
    """Weights [N, B] whose sum is N in each column; where all are 0 they stay so."""
    total = weights.sum(axis=0)
    scaled: Floats = weights * (len(weights) / np.where(total > 0, total, 1))
    return scaled
