"""Brier score as a training loss. Brier 1950; for calibration, Mukhoti et al. 2020."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from trainables.method import Method
from trainables.vectorized import mean


def brier_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over the batch of sum_k (p_k - t_k)^2, in [0, 2].

    logits: [N, K] float. targets: labels [N] int64, or soft [N, K]. Some packages (pycalib) also
    divide by K.
    """
    soft = F.one_hot(targets, logits.shape[-1]) if targets.ndim < logits.ndim else targets
    return mean((logits.softmax(dim=-1) - soft).square().sum(dim=-1), logits)


@dataclass(frozen=True)
class Brier(Method):
    """No hyperparameters. The gradient vanishes for a saturated softmax, even a wrong one."""

    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return brier_loss(logits, targets)
