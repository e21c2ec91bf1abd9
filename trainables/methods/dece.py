"""Differentiable ECE (DECE) as an auxiliary loss. Bohdal et al. 2023, Section 3."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainables.fields import number
from trainables.method import AuxiliaryMethod, Method
from trainables.methods.cross_entropy import CrossEntropy

# As in the released code.
BINS = 15
TAU_A = 100.0
TAU_B = 0.01


def soft_hits(probs: Tensor, labels: Tensor, tau_a: float | Tensor = TAU_A) -> Tensor:
    """relu(2 - soft rank of the true class), [N] in [0, 1]. Bohdal et al. 2023, Eq. 5.

    Computes only the true class's row of the pairwise differences, [N, K]; the released code forms
    [N, K, K].
    """
    p_y = probs.gather(-1, labels[:, None])
    # The true class itself adds sigmoid(0) = 1/2 to the sum; the rank starts at 1.
    rank = 0.5 + torch.sigmoid(tau_a * (probs - p_y)).sum(dim=-1)
    return torch.relu(2 - rank)


def differentiable_ece(
    logits: Tensor,
    labels: Tensor,
    bins: int = BINS,
    tau_a: float | Tensor = TAU_A,
    tau_b: float | Tensor = TAU_B,
) -> Tensor:
    """ECE with soft bins and hits: sum over bins of |mean over samples of q_b (hit - confidence)|.

    q_b is the softmax over b = 1..bins of (b c - (0 + 1 + .. + (b - 1)) / bins) / tau_b, after Yang
    et al. 2018: equal bins as tau_b -> 0. logits: [N, K] float. labels: [N] int64. A bin's mass
    cancels between its weight and its means, so the released code's floor of 1e-6 under q
    (normalised for one bin too many) is not needed. Finite to second order, where the released
    code's own sigmoid has no second derivative.
    """
    probs = logits.softmax(dim=-1)
    confidence = probs.amax(dim=-1)
    number = torch.arange(1, bins + 1, dtype=logits.dtype, device=logits.device)
    edges = number * (number - 1) / (2 * bins)
    q = ((number * confidence[:, None] - edges) / tau_b).softmax(dim=-1)
    gap = soft_hits(probs, labels, tau_a) - confidence
    return (gap @ q).abs().sum() / len(labels)


@dataclass(frozen=True)
class Dece(AuxiliaryMethod):
    """base loss + weight * DECE of the batch."""

    weight: float = number(0.5, low=0, doc="weight of the DECE term")
    bins: int = number(BINS, low=1, doc="number of soft confidence bins")
    tau_a: float = number(TAU_A, above=0, doc="sharpness of the soft rank")
    tau_b: float = number(TAU_B, above=0, doc="temperature of the soft bins")
    base: Method = field(
        default_factory=CrossEntropy, metadata={"doc": "the loss the term is added to"}
    )

    @property
    def per_position(self) -> bool:
        """Its term compares all rows with one another."""
        return False

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        return differentiable_ece(logits, labels, self.bins, self.tau_a, self.tau_b)
