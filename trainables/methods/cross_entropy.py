"""Cross-entropy: the baseline every calibration method is measured against."""

from dataclasses import dataclass

from torch import Tensor

from trainables.method import Method
from trainables.vectorized import cross_entropy


def cross_entropy_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over the batch of -log p_y, in nats.

    logits: [N, K] float. targets: labels [N] int64, or soft [N, K].
    """
    return cross_entropy(logits, targets)


@dataclass(frozen=True)
class CrossEntropy(Method):
    """No hyperparameters."""

    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return cross_entropy_loss(logits, targets)
