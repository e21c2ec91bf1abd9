"""Smooth expected calibration error (SECE) as an auxiliary loss. Wang & Golebiowski 2024."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainables.fields import choice, number, setting
from trainables.method import AuxiliaryMethod, Method
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.dece import soft_hits


def smooth_ece(
    logits: Tensor,
    labels: Tensor,
    bandwidth: float | Tensor,
    hits: str = "hard",
    self_weight: bool = True,
    kernel: str = "normalized",
) -> Tensor:
    """Mean over samples i of |sum_j w_ij hit_j - c_i|, each the centre of its own bin.

    w_ij = exp(-(c_i - c_j)^2 / 2 bandwidth^2), normalised over j. The paper's weights are
    unnormalised, so the sum is no accuracy (it grows with the batch): we take the weighted mean.
    kernel: as_printed takes the paper's sum, about the number of right samples nearby. Where that
    exceeds the confidence, the gradient raises confidences and spreads them apart.
    logits: [N, K] float. labels: [N] int64. hits: hard, or soft as in DECE. self_weight=False
    excludes sample i from its own accuracy (a batch of one gives 0). The gradient flows through
    confidences and weights; hard hits are constants.
    """
    probs = logits.softmax(dim=-1)
    confidence, predicted = probs.max(dim=-1)
    hit = (predicted == labels).to(logits.dtype) if hits == "hard" else soft_hits(probs, labels)
    log_weights = -((confidence[:, None] - confidence[None, :]) ** 2) / (2 * bandwidth**2)
    if not self_weight:
        if len(labels) == 1:
            return logits.sum() * 0
        itself = torch.eye(len(labels), dtype=torch.bool, device=logits.device)
        log_weights = log_weights.masked_fill(itself, -torch.inf)
    weights = log_weights.exp() if kernel == "as_printed" else log_weights.softmax(dim=-1)
    accuracy = weights @ hit
    return (accuracy - confidence).abs().mean()


@dataclass(frozen=True)
class Sece(AuxiliaryMethod):
    """base loss + weight * SECE of the batch. The paper gives no bandwidth; 0.1 is our choice."""

    bandwidth: float = number(0.1, above=0, doc="standard deviation of the kernel on confidences")
    weight: float = number(0.5, low=0, doc="weight of the SECE term")
    hits: str = choice("hard", "soft", doc="correctness: 0 or 1, or differentiable")
    self_weight: bool = setting(True, doc="include a sample in its own smoothed accuracy")
    kernel: str = choice(
        "normalized", "as_printed", doc="weights: with a sum of 1, or the paper's sum, no accuracy"
    )
    base: Method = field(
        default_factory=CrossEntropy, metadata={"doc": "the loss the term is added to"}
    )

    @property
    def per_position(self) -> bool:
        """Its term compares all rows with one another."""
        return False

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        own = (self.bandwidth, self.hits, self.self_weight, self.kernel)
        return smooth_ece(logits, labels, *own)
