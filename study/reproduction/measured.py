"""A trained model's values in a table's columns, and how much they owe to the validation split.

Temperatures are the papers': fitted on the whole validation split, without a prior, by NLL or by
ECE on a grid. Metrics are fractions and nats, of the test split.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from study.uncertainty.resampling import BINS, Draws, Floats, product
from trainables import metrics
from trainables.machine import in_threads
from trainables.metrics.binned import equal_width_index
from trainables.metrics.scores import negative_log_likelihood, top_label
from trainables.metrics.shared.cells import HIGHEST, LOWEST
from trainables.metrics.shared.post_hoc import (
    ahead_of_label,
    fit_temperature_by_nll,
    slope_and_curvature,
)
from trainables.metrics.shared.temperature_of_ece import GRID, behind_top, confidence_at
from trainables.outputs.predictions import Predictions
from trainables.seeding import seed_of

RESAMPLES = 200
# A metric over resamples is computed at no more temperatures than this, and interpolated.
MOST_TEMPERATURES = 8
STEP = 0.02  # in log T, between which the resampled NLL's slope is interpolated: T to about 1e-4


class Measure(NamedTuple):
    """What a cell shows: a metric, raw or after a temperature of FITS.

    Metrics: those of `trainables.metrics.described`; `temperature`; `temperature_distance`,
    |log T|; `nll_right` and `nll_wrong`, the mean NLL of right and of wrong samples;
    `sample_prioritization`, ECE as the released code of Tata et al. 2022 computes it.
    """

    metric: str
    after: str | None = None


class Model(NamedTuple):
    """A trained model's predictions of both splits."""

    validation: Predictions
    test: Predictions


# ---- the values ----------------------------------------------------------------------------------


def measured(models: Sequence[Model], measures: Collection[Measure]) -> list[dict[Measure, float]]:
    """The value of each measure, by model; NaN where it has none (NLL of no wrong samples)."""

    def of_model(model: Model) -> dict[Measure, float]:
        found: dict[Measure, float] = {}
        for after, names in _by_fit(measures).items():
            temperature = 1.0
            if after is not None:
                temperature = _fitted(model.validation, after)
            values = _values(model.test, temperature, names)
            found |= {Measure(name, after): value for name, value in values.items()}
        return found

    return in_threads(of_model, models)


def _fitted(predictions: Predictions, after: str) -> float:
    """The papers' temperature. By ECE: that of `fit_temperature_by_ece`, of fewer trials."""
    if after == "nll":
        return fit_temperature_by_nll(predictions.logits, predictions.labels)
    return float(by_ece(predictions, np.ones((len(predictions.labels), 1)))[0])


def _by_fit(measures: Iterable[Measure]) -> dict[str | None, list[str]]:
    """The metrics of each fit."""
    found: dict[str | None, list[str]] = {}
    for metric, after in measures:
        found.setdefault(after, []).append(metric)
    return found


def _values(predictions: Predictions, temperature: float, names: Iterable[str]) -> dict[str, float]:
    scaled = replace(predictions, logits=predictions.logits.double() / temperature)
    of_temperature = _of_temperatures(np.array(temperature))
    return {
        name: float(of_temperature[name]) if name in of_temperature else _value(name, scaled)
        for name in names
    }


def _of_temperatures(temperatures: Floats) -> dict[str, Floats]:
    """The measures of a temperature itself."""
    return {
        "temperature": temperatures,
        "temperature_distance": np.abs(np.log(temperatures)),
    }


def _value(name: str, scaled: Predictions) -> float:
    logits = scaled.logits
    labels = scaled.labels
    if name == "sample_prioritization":
        return _ece_below_one(logits, labels)
    if name in ("nll_right", "nll_wrong"):
        chosen = (logits.argmax(dim=-1) == labels) == (name == "nll_right")
        return float(negative_log_likelihood(logits[chosen], labels[chosen]))
    found = metrics.measure(logits, labels, [name], BINS, groups=scaled.groups)
    return found.get(name, math.nan)


def _ece_below_one(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """ECE over bins [lo, hi) in float32, of the samples whose confidence is not 1.0."""
    _, hits = top_label(logits, labels)
    confidence = logits.float().softmax(dim=-1).amax(dim=-1)
    kept = confidence < 1
    below = confidence[kept].double()
    index = torch.bucketize(below, torch.linspace(0, 1, BINS + 1).double(), right=True) - 1
    gaps = torch.zeros(BINS, dtype=torch.float64).index_add(0, index, hits[kept] - below)
    return float(gaps.abs().sum() / len(below))


# ---- the spread of the validation split ----------------------------------------------------------


def variance(resampled: Floats | None) -> float:
    """The variance over resamples; 0 where nothing depends on them."""
    if resampled is None:
        return 0.0
    with np.errstate(invalid="ignore"):  # of infinite values
        return float(np.var(resampled, ddof=1))


def resampled_means(
    models: Sequence[Model], measures: Collection[Measure], resamples: int = RESAMPLES
) -> dict[Measure, Floats]:
    """Each measure's mean over the models, [B], if validation were another sample.

    models: the seeds of one method. All methods share the validation split, so the resamples are
    the same for all. Temperatures are refitted in each; the test split stays. Absent where no
    temperature is fitted.
    """
    found = {}
    fits = {after: names for after, names in _by_fit(measures).items() if after is not None}
    validation = models[0].validation
    seed = seed_of(0, "validation split")
    draws = Draws.of(len(validation.labels), resamples, seed, validation.groups)
    counts = draws.counts.astype(np.float64)
    if draws.groups is not None:
        counts = counts[draws.groups]

    def resampled(model: Model) -> dict[Measure, Floats]:
        of_model: dict[Measure, Floats] = {}
        for after, names in fits.items():
            temperatures = FITS[after](model.validation, counts)
            values = _at_temperatures(model.test, temperatures, names)
            of_model |= {Measure(name, after): value for name, value in values.items()}
        return of_model

    each = in_threads(resampled, models)
    for measure in each[0]:
        found[measure] = np.mean([of_model[measure] for of_model in each], axis=0)
    return found


def _at_temperatures(
    predictions: Predictions, temperatures: Floats, names: Sequence[str]
) -> Mapping[str, Floats]:
    """Each metric at these temperatures, [B]: exact where few of them differ."""
    nodes = np.unique(temperatures)
    if len(nodes) > MOST_TEMPERATURES:
        nodes = np.geomspace(nodes[0], nodes[-1], MOST_TEMPERATURES)
    found = _of_temperatures(temperatures)
    others = [name for name in names if name not in found]
    at_nodes = [_values(predictions, float(node), others) for node in nodes]
    for name in others:
        values = [at_node[name] for at_node in at_nodes]
        found[name] = np.interp(np.log(temperatures), np.log(nodes), values)
    return {name: found[name] for name in names}


def by_ece(predictions: Predictions, counts: Floats) -> Floats:
    """`fit_temperature_by_ece` of each resample, [B]. counts: [N, B] float64.

    The sum of hits less confidences is at most the ECE in size and rises with T. So the search
    starts where it is about 0 and goes both ways until it is larger than the lowest ECE that each
    resample has reached, which leaves out most of the grid.
    """
    hits = (predictions.logits.argmax(dim=-1) == predictions.labels).double()
    behind = behind_top(predictions.logits)
    weights = counts.sum(axis=1)

    def sums(place: int) -> Floats:
        """Hits less confidences in each bin, [BINS, B]."""
        confidence = confidence_at(behind, GRID[place])
        index = equal_width_index(confidence, BINS).numpy()
        return product(index[:, None], (hits - confidence).numpy()[:, None], counts, BINS)

    def rises_above_0(place: int) -> bool:
        return float((hits - confidence_at(behind, GRID[place])).numpy() @ weights) >= 0

    errors: dict[int, Floats] = {}
    lowest = np.full(counts.shape[1], np.inf)
    rounding = 1e-9 * len(counts)
    start = bisect_left(range(len(GRID) - 1), True, key=rises_above_0)
    for places, sign in ((range(start, len(GRID)), 1), (range(start - 1, -1, -1), -1)):
        for place in places:
            found = sums(place)
            errors[place] = np.abs(found).sum(axis=0)
            lowest = np.minimum(lowest, errors[place])
            if (sign * found.sum(axis=0) > lowest + rounding).all():
                break
    tried = sorted(errors)
    best = np.array([errors[place] for place in tried]).argmin(axis=0)
    return np.array(GRID)[np.array(tried)[best]]


def by_nll(predictions: Predictions, counts: Floats) -> Floats:
    """`fit_temperature_by_nll` of each resample, [B], to about 1e-4. counts: [N, B] float64.

    The slope of NLL in 1/T falls with T: from the temperature of the sample outwards, until it
    changes sign in all resamples.
    """
    ahead = ahead_of_label(predictions.logits, predictions.labels)
    weights = torch.from_numpy(counts)

    def slopes(number: int) -> Floats:
        each, _ = slope_and_curvature(ahead, math.exp(number * STEP))
        found: Floats = (each @ weights).numpy()
        return found

    middle = round(math.log(fit_temperature_by_nll(predictions.logits, predictions.labels)) / STEP)
    bottom = middle - 1
    top = middle + 1
    found = [slopes(number) for number in (bottom, middle, top)]
    while (found[0] <= 0).any() and bottom * STEP > math.log(LOWEST):
        bottom -= 1
        found.insert(0, slopes(bottom))
    while (found[-1] > 0).any() and top * STEP < math.log(HIGHEST):
        top += 1
        found.append(slopes(top))
    table = np.array(found)
    positive = (table > 0).sum(axis=0)
    right = positive.clip(1, len(table) - 1)
    columns = np.arange(table.shape[1])
    above = table[right - 1, columns]
    below = table[right, columns]
    share = np.where(positive == 0, 0.0, 1.0)
    crosses = (positive > 0) & (positive < len(table))
    share[crosses] = above[crosses] / (above - below)[crosses]
    return np.exp((bottom + right - 1 + share) * STEP).clip(LOWEST, HIGHEST)


FITS = {"nll": by_nll, "ece_grid": by_ece}
