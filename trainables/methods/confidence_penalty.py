"""Explicit confidence penalty. Pereyra et al. 2017, Section 3."""

from dataclasses import dataclass

from torch import Tensor

from trainables.fields import number
from trainables.method import Method
from trainables.methods.shared.entropy import entropy
from trainables.vectorized import cross_entropy, mean


def confidence_penalty_loss(logits: Tensor, targets: Tensor, weight: float | Tensor) -> Tensor:
    """Cross-entropy - weight * mean entropy of the predictions, in nats.

    logits: [N, K] float. targets: labels [N] int64, or soft [N, K]. weight >= 0. The entropy is
    summed over classes as in the paper; MbLS's code also averages over classes, so its weight is K
    times ours.
    """
    return cross_entropy(logits, targets) - weight * mean(entropy(logits), logits)


@dataclass(frozen=True)
class ConfidencePenalty(Method):
    """Penalizes confidence on every sample, correct or wrong."""

    weight: float = number(0.1, low=0, doc="weight of the mean entropy, in nats")
    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return confidence_penalty_loss(logits, targets, self.weight)
