"""Reliability diagrams: accuracy by confidence, with the band of a calibrated model."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study.uncertainty.resampling import SampleTerms
from study.uncertainty.temperature import cross_fitted, fold_temperatures
from trainables.groups import together
from trainables.outputs.predictions import Arrays, Predictions

Values = NDArray[np.float64]
BINS = 15
LEVEL = 0.95
SIGNED = 2000  # draws of the groups' signs
ROUNDING = 1e-9  # a bin of a single group lies on an end of its band


def statement(unit: str | None = None) -> str:
    """The sentences under every diagram. unit: what the groups of samples are called, if any."""
    how = "labels drawn from them"
    if unit is not None:
        how += f", or the residuals of its {unit} with random signs, whichever vary more"
    return (
        f"Grey band: where {LEVEL:.0%} of a bin's accuracies would lie if its confidences were"
        f" calibrated ({how}). Of calibrated bins, at most one in twenty lies outside."
    )


@dataclass(frozen=True)
class Reliability:
    """Non-empty bins in order of confidence: [B] arrays.

    low, high: the consistency band, 95% of the accuracies that calibrated confidences would give.
    """

    numbers: NDArray[np.int64]  # bin k is (k / BINS, (k + 1) / BINS]
    counts: Values
    confidence: Values  # mean of the bin
    accuracy: Values
    low: Values
    high: Values

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Bins outside the band; for calibrated predictions, at most one in twenty."""
        return (self.accuracy < self.low) | (self.accuracy > self.high)

    @property
    def ece(self) -> float:
        """Mean of |accuracy - confidence|, weighted by the bins' fractions of the samples."""
        return float(self.counts @ np.abs(self.accuracy - self.confidence) / self.counts.sum())


@dataclass(frozen=True)
class Diagram:
    """A trial's predictions before and after cross-fitted temperatures, and the median of these."""

    raw: Reliability
    scaled: Reliability
    temperature: float


def diagram(predictions: Predictions) -> Diagram:
    """The diagram that figures and page show for a trial."""
    arrays = predictions.arrays
    fitted = fold_temperatures(arrays)
    scaled = arrays._replace(logits=cross_fitted(arrays, fitted), given=None)
    return Diagram(
        reliability(arrays),
        reliability(scaled, ties=arrays.given is not None),
        statistics.median(fitted) if len(fitted) else 1.0,
    )


def reliability(arrays: Arrays, ties: bool = False) -> Reliability:
    """Top-label reliability in equal-width bins. ties: as `SampleTerms.of` takes it.

    The band is that of Broecker and Smith 2007 given the confidences: labels are drawn from them,
    and each bin's accuracies are cut at 2.5% and 97.5%. With groups it reaches to the ends of
    `_signed_bands` too: in a bin without a wrong label, signs alone vary too little.
    """
    groups = together(arrays.groups)
    logits = arrays.logits.astype(np.float64, copy=False)
    terms = SampleTerms.of(
        logits, arrays.labels, False, groups=groups, given=arrays.given, ties=ties
    )
    confidence, hits, index = terms.confidence, terms.hits, terms.width
    numbers, place = np.unique(index, return_inverse=True)
    counts = np.bincount(place).astype(np.float64)
    means, accuracy = (np.bincount(place, each) / counts for each in (confidence, hits))
    low, high = np.array([consistency_band(confidence[index == number]) for number in numbers]).T
    if terms.groups is not None:
        residual = hits - confidence
        least, most = _signed_bands(counts, means, residual, index, terms.groups)
        low = np.minimum(low, least)
        high = np.maximum(high, most)
    return Reliability(numbers, counts, means, accuracy, low, high)


def consistency_band(confidence: Values) -> tuple[float, float]:
    """The ends of the accuracies that these confidences [n] would give: attainable values k / n.

    The hits are Poisson-binomial: their probabilities are the inverse Fourier transform of a
    product over samples (Hong 2013), here over a window beyond which less than 1e-10 lies
    (Bernstein's inequality).
    """
    mean = confidence.sum()
    reach = 15 + 7 * math.sqrt(confidence @ (1 - confidence))
    start = max(0, math.floor(mean - reach))
    size = min(len(confidence), math.ceil(mean + reach)) - start + 1
    turns = np.exp(-2j * np.pi / size * np.arange(size // 2 + 1))
    transform = np.ones_like(turns)
    for part in np.array_split(confidence, -(-len(confidence) // 500)):  # a MB at a time
        transform *= (1 + part[:, None] * (turns - 1)).prod(axis=0)
    probs = np.roll(np.fft.irfft(transform, size), -start)  # of start, start + 1, ... hits
    tail = (1 - LEVEL) / 2
    low, high = (start + np.searchsorted(probs.cumsum(), [tail, 1 - tail])) / len(confidence)
    return float(low), float(high)


def _signed_bands(
    counts: Values,
    confidence: Values,
    residual: Values,
    index: NDArray[np.int64],
    groups: NDArray[np.int64],
) -> tuple[Values, Values]:
    """The ends of the accuracies, [B] each, if every group's residuals had a random sign.

    counts, confidence: of the non-empty bins; residual: hits less confidence, [N].
    """
    total = int(groups.max()) + 1
    sums = np.bincount(index * total + groups, residual, BINS * total).reshape(BINS, total)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(total, SIGNED))
    drawn = sums[np.unique(index)] @ signs
    tail = (1 - LEVEL) / 2
    low, high = confidence + np.quantile(drawn, [tail, 1 - tail], axis=1) / counts
    return np.maximum(low - ROUNDING, 0), np.minimum(high + ROUNDING, 1)
