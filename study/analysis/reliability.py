"""What a reliability diagram shows: accuracy against confidence, bin by bin, and where it would lie by chance alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainables.metrics.binned import ReliabilityBins, equal_width_index
from trainables.metrics.scores import top_label
from trainables.seeding import seed_of

Values = NDArray[np.float64]
BINS, DRAWS, LEVEL = 15, 1000, 0.95


@dataclass(frozen=True)
class Reliability:
    """Of each bin that holds a sample, in order of confidence: [B] arrays.

    low, high: the consistency band, 95% of accuracies that the bin's confidences would give if they were true.
    """

    counts: Values
    confidence: Values  # mean of the bin
    accuracy: Values
    low: Values
    high: Values

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Bins that chance does not explain; of calibrated predictions about one in twenty is."""
        return (self.accuracy < self.low) | (self.accuracy > self.high)

    @property
    def ece(self) -> float:
        """Share-weighted mean of |accuracy - confidence|."""
        return float(self.counts @ np.abs(self.accuracy - self.confidence) / self.counts.sum())


def reliability(logits: Tensor, labels: Tensor, bins: int = BINS, draws: int = DRAWS, seed: int = 0) -> Reliability:
    """Of the top label, in equal-width bins. logits: [N, K]; labels: [N] int64.

    The band is that of Broecker and Smith 2007 given the confidences: labels are drawn from them `draws` times, and
    each bin's accuracies cut at 2.5% and 97.5%.
    """
    confidence, hits = top_label(logits.double(), labels)
    found = ReliabilityBins.of(confidence, hits, bins)
    index = equal_width_index(confidence, bins).numpy()
    generator = np.random.default_rng(seed_of(seed, "consistency"))
    groups = [confidence.numpy()[index == k] for k in np.unique(index)]
    bands = np.array([consistency_band(group, draws, generator) for group in groups])
    counts, mean_confidence, accuracy = (column.numpy() for column in found)
    return Reliability(counts, mean_confidence, accuracy, *bands.T)


def consistency_band(confidence: Values, draws: int, generator: np.random.Generator) -> tuple[float, float]:
    """Low and high end of the accuracy that these confidences [n] would give. Both are values it can take, k / n."""
    hits = np.zeros(draws, np.int64)
    for part in np.array_split(confidence, -(-len(confidence) // 1000)):  # a few MB at a time
        hits += (generator.random((draws, len(part)), np.float32) < part.astype(np.float32)).sum(axis=1)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(hits, [tail, 1 - tail], method="inverted_cdf") / len(confidence)
    return float(low), float(high)
