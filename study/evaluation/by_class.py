"""One row a class: how many of its samples are found, and whether its probability holds."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from study.evaluation.user_predictions import UserPredictions
from study.uncertainty.consistency import calibrated_sums
from study.uncertainty.intervals import intervals, percentile, wilson
from study.uncertainty.resampling import BINS, SUMMED, Draws, Floats, SampleTerms, mass_starts
from study.uncertainty.worlds import Resampled
from trainables.metrics.binned import equal_width_index
from trainables.problems import FieldError

if TYPE_CHECKING:
    import pandas

NONE = (math.nan, math.nan)


def table(given: UserPredictions, level: float | None, resamples: int) -> pandas.DataFrame:
    """A row for each class, with the columns

    class, samples (with this label), predicted (as it); recall and precision; excess: its mean
    probability less its share of the samples; ece: of its probability against whether the sample is
    of it, in 15 bins (lo, hi] of equal width. Of the last four also `_low` and `_high`, NaN where
    there is none. Raises FieldError with weights.
    """
    import pandas

    if given.weights is not None:
        raise FieldError("weights", "classes have no weighted form", "Leave them out.")
    predictions = given.predictions
    probs = predictions.probs
    scores = predictions.logits.softmax(-1) if probs is None else probs.double()
    predicted = (predictions.logits if probs is None else probs).argmax(-1).numpy()
    labels = predictions.labels.numpy()
    draws = None
    if resamples and level is not None:
        draws = Draws.of(len(labels), resamples, 0, predictions.groups)
    rows = []
    for number, name in enumerate(given.classes):
        is_it = (labels == number).astype(float)
        said = (predicted == number).astype(float)
        own = scores[:, number].double().numpy()
        row = {"class": name, "samples": int(is_it.sum()), "predicted": int(said.sum())}
        for column, of in (("recall", is_it), ("precision", said)):
            row |= _three(column, *_share(is_it * said, of, draws, level))
        row |= _three("excess", *_mean(own - is_it, draws, level))
        row |= _three("ece", *_error(own, is_it, draws, level))
        rows.append(row)
    return pandas.DataFrame(rows)


def _three(column: str, value: float, low: float, high: float) -> dict[str, float]:
    return {column: value, f"{column}_low": low, f"{column}_high": high}


def _sums(values: Floats, draws: Draws) -> Floats:
    """The sums of values [N] in each resample, [B]."""
    if draws.groups is not None:
        values = np.bincount(draws.groups, values).astype(float)
    found: Floats = values @ draws.counts
    return found


def _share(
    hits: Floats, of: Floats, draws: Draws | None, level: float | None
) -> tuple[float, float, float]:
    """The share of `of` that are hits [N], by Wilson's interval, or of groups by percentiles."""
    total = int(of.sum())
    if not total:
        return math.nan, *NONE
    value = float(hits.sum() / total)
    if draws is None or level is None:
        return value, *NONE
    if draws.groups is None:
        return value, *wilson(value, total, level)
    with np.errstate(invalid="ignore"):
        shares = _sums(hits, draws) / _sums(of, draws)
    return value, *(percentile(shares[~np.isnan(shares)], level))


def _mean(values: Floats, draws: Draws | None, level: float | None) -> tuple[float, float, float]:
    """The mean of values [N], with the percentiles of its resamples."""
    if draws is None or level is None:
        return float(values.mean()), *NONE
    means = _sums(values, draws) / _sums(np.ones_like(values), draws)
    return float(values.mean()), *percentile(means, level)


def _error(
    probs: Floats, is_it: Floats, draws: Draws | None, level: float | None
) -> tuple[float, float, float]:
    """ECE of one class's probability [N], whose hits are the samples of that class."""
    groups = None if draws is None else draws.groups
    order = np.arange(len(probs)) if groups is None else np.argsort(groups, kind="stable")
    own, hits = probs[order], is_it[order]
    scores = np.zeros((len(own), len(SUMMED)))
    scores[:, SUMMED.index("accuracy")] = hits
    terms = SampleTerms(
        classes=2,
        confidence=own,
        scores=scores,
        hits=hits,
        width=equal_width_index(torch.from_numpy(own), BINS).numpy(),
        mass=np.searchsorted(mass_starts(own), own, side="right"),
        labels=hits.astype(np.int64),
        groups=None if groups is None else groups[order],
    )
    sample = terms.total()
    value = float(sample.metrics(["ece"])["ece"][0])
    if draws is None or level is None:
        return value, *NONE
    resampled = terms.sums(draws.weights)
    found = Resampled(sample, resampled, partial(calibrated_sums, terms, draws.chances))
    one = intervals(found, level, ["ece"]).get("ece")
    return (value, *NONE) if one is None else (value, one.low, one.high)
