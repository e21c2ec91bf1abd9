"""Calibration of every class, not only the top one: p_k against [y = k], binned as in binned.py."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.metrics.binned import (
    ReliabilityBins,
    debiased_square,
    equal_mass_index,
    equal_width_index,
)
from trainables.metrics.scores import probabilities, rounded

METRICS = {
    "classwise_ece": {"place": 9, "stored": True, "function": "classwise_calibration_error",
        "label": "classwise ECE", "heading": "CwECE", "decimals": 3, "matters": "0.02 / K"},
    "brier_calibration": {"place": 11, "largest": 2, "matters": 0.005},
    "brier_refinement": {"place": 12, "kind": "score", "largest": 2, "matters": 0.005},
    "thresholded_classwise_ece": {"place": 20,
        "function": "thresholded_classwise_calibration_error", "matters": "0.02 / K"},
    "debiased_l2_marginal": {"place": 21, "function": "debiased_l2_marginal_error",
        "matters": 0.01},
}  # fmt: skip

# Classes binned at once: bounds the memory for many classes.
BLOCK = 64
THRESHOLD = 0.01


class _Block(NamedTuple):
    """Some classes of the predictions, and each p's cell: bin k of class c is k + bins * c."""

    probs: Tensor  # [N, C] float64
    hits: Tensor  # [N, C] float64
    cells: Tensor  # [N, C]
    size: int  # of all cells

    def sums(self, values: Tensor) -> Tensor:
        """The sum of values [N, C] in each cell, [C, bins]."""
        total = torch.zeros(self.size, dtype=torch.float64, device=values.device)
        total.index_add_(0, self.cells.flatten(), values.flatten())
        return total.reshape(self.probs.shape[1], -1)


def _blocks(
    found: Tensor, labels: Tensor, bins: int, index: Callable[[Tensor, int], Tensor]
) -> Iterator[_Block]:
    """found: the probabilities [N, K]."""
    for start in range(0, found.shape[1], BLOCK):
        part = found[:, start : start + BLOCK].contiguous()
        classes = torch.arange(start, start + part.shape[1], device=found.device)
        offset = bins * torch.arange(len(classes), device=found.device)
        yield _Block(
            part.double(),
            (labels[:, None] == classes).double(),
            index(part, bins) + offset,
            bins * len(classes),
        )


def classwise_calibration_error(
    logits: Tensor,
    labels: Tensor,
    bins: int = 15,
    probs: Tensor | None = None,
    threshold: float = 0.0,
) -> Tensor:
    """Mean over classes k of the ECE of p_k against [y = k]; falls with K. Kull et al. 2019.

    With a threshold, a class is measured on the samples with p_k above it, and left out if there
    are none; NaN if no class has any.
    """
    errors = []
    found = probabilities(logits, probs)
    for block in _blocks(found, labels, bins, equal_width_index):
        kept = block.probs > rounded(threshold, found.dtype)
        if threshold == 0:
            kept = torch.ones_like(kept)
        gaps = block.sums((block.hits - block.probs) * kept).abs().sum(dim=-1)
        samples = kept.sum(dim=0)
        errors.append((gaps / samples)[samples > 0])
    return torch.cat(errors).mean()


def thresholded_classwise_calibration_error(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """Classwise ECE over probabilities above 1%. After Nixon et al. 2019 (equal-mass TACE)."""
    return classwise_calibration_error(logits, labels, bins, probs, THRESHOLD)


def debiased_l2_marginal_error(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """Root of the mean over classes of the debiased squared L2 error of p_k. Kumar et al. 2019.

    Equal-mass bins for each class; a negative value of a class counts as 0. NaN if no bin has two
    samples.
    """
    squares = []
    for block in _blocks(probabilities(logits, probs), labels, bins, equal_mass_index):
        parts = (torch.ones_like(block.probs), block.probs, block.hits)
        columns = map(block.sums, parts)
        for count, prob, hit in zip(*columns, strict=True):
            some = count > 0
            found = ReliabilityBins(count[some], prob[some] / count[some], hit[some] / count[some])
            squares.append(debiased_square(found).clamp(min=0))
    return torch.stack(squares).mean().sqrt()


def brier_calibration(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """Part of the Brier score that recalibrating each class would remove. DeGroot & Fienberg 1983.

    On binned p_k: sum over classes and equal-width bins of n_b / N * (mean p_k - frequency of k)^2.
    The rest, brier_refinement, is the variance of p_k - [y = k] within the bins; the two add up
    exactly to the Brier score.
    """
    total = torch.zeros((), dtype=torch.float64, device=logits.device)
    for block in _blocks(probabilities(logits, probs), labels, bins, equal_width_index):
        counts = block.sums(torch.ones_like(block.probs))
        gaps = block.sums(block.probs - block.hits)
        total += (gaps.square() / counts.clamp(min=1)).sum()
    return total / len(labels)


def brier_refinement(
    logits: Tensor, labels: Tensor, bins: int = 15, probs: Tensor | None = None
) -> Tensor:
    """The Brier score that recalibrating each class would leave: brier - brier_calibration."""
    total = torch.zeros((), dtype=torch.float64, device=logits.device)
    for block in _blocks(probabilities(logits, probs), labels, bins, equal_width_index):
        residual = block.probs - block.hits
        counts = block.sums(torch.ones_like(residual)).clamp(min=1)
        means = block.sums(residual) / counts
        total += (residual - means.flatten()[block.cells]).square().sum()
    return total / len(labels)
