"""Calibration errors of the top label over bins of its confidence.

Equal-width bins are right-closed, (lo, hi], with float64 edges k / bins, as in Guo et al. 2017; the
first also includes 0, so a confidence of exactly 1.0 is in the last bin and nothing is dropped.
Equal-mass bins have the sizes of `numpy.array_split` of the sorted confidences; equal confidences
share the bin of the first of them, so that the row order does not matter; an empty bin is dropped.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.metrics.scores import top_label
from trainables.metrics.shared.parts import mass_ranks

METRICS = {
    "ece": {"place": 6, "stored": True, "function": "expected_calibration_error", "label": "ECE",
        "heading": "ECE", "matters": 0.01},
    "mce": {"place": 7, "stored": True, "function": "maximum_calibration_error", "label": "MCE",
        "heading": "MCE", "decimals": 1, "matters": 0.05},
    "adaptive_ece": {"place": 8, "stored": True, "function": "adaptive_calibration_error",
        "label": "adaptive ECE", "heading": "AdaECE", "matters": 0.01},
    "debiased_l2": {"place": 10, "stored": True, "function": "debiased_l2_calibration_error",
        "label": "debiased L2 error", "matters": 0.01},
    "mce_of_ten": {"place": 15, "function": "maximum_calibration_error_of_ten", "matters": 0.05},
    "ace_unweighted": {"place": 16, "function": "average_calibration_error", "matters": 0.01},
    "rmsce": {"place": 17, "function": "root_mean_square_calibration_error", "matters": 0.01},
    "l2": {"place": 18, "function": "l2_calibration_error", "matters": 0.01},
}  # fmt: skip


class ReliabilityBins(NamedTuple):
    """A reliability diagram: count, mean confidence and accuracy of each non-empty bin."""

    counts: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def gap(self) -> Tensor:
        """|accuracy - confidence| of each bin."""
        return (self.accuracy - self.confidence).abs()

    @property
    def share(self) -> Tensor:
        return self.counts / self.counts.sum()

    @classmethod
    def of(cls, confidence: Tensor, hits: Tensor, bins: int) -> "ReliabilityBins":
        return cls.collect(confidence, hits, equal_width_index(confidence, bins))

    @classmethod
    def of_equal_mass(cls, confidence: Tensor, hits: Tensor, bins: int) -> "ReliabilityBins":
        """Bins of (nearly) equal counts, ties kept together."""
        return cls.collect(confidence, hits, equal_mass_index(confidence, bins))

    @classmethod
    def collect(cls, confidence: Tensor, hits: Tensor, index: Tensor) -> "ReliabilityBins":
        """Bins from indices >= 0. confidence: [N]; hits: [N] float64; index: [N] int64."""
        confidence = confidence.double()
        sums = torch.zeros(3, int(index.max()) + 1, dtype=torch.float64, device=confidence.device)
        sums.index_add_(1, index, torch.stack([torch.ones_like(confidence), confidence, hits]))
        count, confidence_sum, hit_sum = sums[:, sums[0] > 0]
        return cls(count, confidence_sum / count, hit_sum / count)


def equal_width_index(values: Tensor, bins: int) -> Tensor:
    """The index of each value's equal-width bin. The edges are rounded as the values are: 0.6 in
    float32 is on the edge 9 / 15, though it is above 0.6 in float64."""
    edges = torch.arange(1, bins, dtype=torch.float64, device=values.device) / bins
    return torch.bucketize(values.double(), edges.to(values.dtype).double())


def equal_mass_index(values: Tensor, bins: int) -> Tensor:
    """The index of each value's equal-mass bin; each column of [N, ...] has its own bins."""
    ordered, order = values.sort(dim=0)
    starts = torch.tensor(mass_ranks(len(values), bins), device=values.device)
    index = torch.bucketize(first_of_equals(ordered), starts, right=True)
    return torch.empty_like(order).scatter_(0, order, index)


def first_of_equals(ordered: Tensor) -> Tensor:
    """For each element of columns [N, ...] sorted along N: the first element equal to it."""
    position = torch.arange(len(ordered), device=ordered.device)
    position = position.reshape(-1, *[1] * (ordered.dim() - 1)).expand(ordered.shape)
    starts = torch.zeros_like(position)
    starts[1:] = position[1:] * (ordered[1:] != ordered[:-1])
    return starts.cummax(dim=0).values


def expected_calibration_error(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """Sum over equal-width bins of n_b / N * |accuracy - confidence|. Guo et al. 2017, Eq. 3."""
    confidence, hits = top_label(logits, labels, probs)
    # The samples of a bin cancel. No value is read, so that on a GPU an epoch's ECE costs no wait.
    inside = F.one_hot(equal_width_index(confidence, bins), bins).double()
    return ((hits - confidence.double()) @ inside).abs().sum() / len(labels)


def maximum_calibration_error(
    logits: Tensor,
    labels: Tensor,
    bins: int = 15,
    probs: Tensor | None = None,
    min_count: int = 1,
) -> Tensor:
    """Largest |accuracy - confidence| over the bins; inherently noisy. Guo et al. 2017, Eq. 5.

    Bins with fewer than `min_count` samples are skipped; NaN if none is left.
    """
    found = ReliabilityBins.of(*top_label(logits, labels, probs), bins)
    gaps = found.gap[found.counts >= min_count]
    if not len(gaps):
        return found.gap.new_tensor(torch.nan)
    return gaps.max()


def maximum_calibration_error_of_ten(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """MCE over the bins with at least ten samples; NaN if there is none."""
    return maximum_calibration_error(logits, labels, bins, probs, min_count=10)


def average_calibration_error(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """Mean of |accuracy - confidence| over the non-empty equal-width bins, equally weighted.

    netcal's `ACE`, `average_calibration_error` in Mukhoti et al. 2020's code. Others use the name
    for adaptive_ece.
    """
    return ReliabilityBins.of(*top_label(logits, labels, probs), bins).gap.mean()


def root_mean_square_calibration_error(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """The plug-in L2 error, equal widths: root of sum n_b / N * (accuracy - confidence)^2."""
    found = ReliabilityBins.of(*top_label(logits, labels, probs), bins)
    return found.share.dot(found.gap.square()).sqrt()


def adaptive_calibration_error(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """ECE over equal-mass bins (AdaECE). Mukhoti et al. 2020, Section 3.

    (Their code interpolates edges and drops the least confident sample.)
    """
    found = ReliabilityBins.of_equal_mass(*top_label(logits, labels, probs), bins)
    return found.share.dot(found.gap)


def l2_calibration_error(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """The L2 error over equal-mass bins, plugged in and so biased upward. Kumar et al. 2019."""
    found = ReliabilityBins.of_equal_mass(*top_label(logits, labels, probs), bins)
    return found.share.dot(found.gap.square()).sqrt()


def debiased_l2_calibration_error(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """L2 error over equal-mass bins minus its bias, at least 0. Kumar et al. 2019.

    Bins with one sample have no variance to subtract and are left out; NaN if no bin has two.
    """
    found = ReliabilityBins.of_equal_mass(*top_label(logits, labels, probs), bins)
    return debiased_square(found).clamp(min=0).sqrt()


def debiased_square(found: ReliabilityBins) -> Tensor:
    """An unbiased estimate of the binned model's squared L2 error; may be negative.

    sum_b n_b / N [(confidence_b - accuracy_b)^2 - accuracy_b (1 - accuracy_b) / (n_b - 1)] over
    bins with n_b > 1, N their total; NaN without any.
    """
    counts, confidence, accuracy = (each[found.counts > 1] for each in found)
    if not len(counts):
        return found.counts.new_tensor(torch.nan)
    square = (confidence - accuracy).square() - accuracy * (1 - accuracy) / (counts - 1)
    return counts.dot(square) / counts.sum()
