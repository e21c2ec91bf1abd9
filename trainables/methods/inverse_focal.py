"""Inverse focal loss. Wang, Feng & Zhang 2021; its formula alone: no code of it was released."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.fields import number
from trainables.method import Method, require_labels
from trainables.methods.focal import log_odds
from trainables.vectorized import mean


def inverse_focal_loss(logits: Tensor, labels: Tensor, gamma: float | Tensor) -> Tensor:
    """Mean over the batch of -(1 + p_y)^gamma * log p_y, in nats.

    logits: [N, K] float; a class that is never a label may have -inf. labels: [N] int64. gamma >=
    0; 0 gives cross-entropy.
    """
    lead = log_odds(logits, labels)
    factor = torch.exp(gamma * torch.log1p(torch.sigmoid(lead)))
    return mean(factor * F.softplus(-lead, threshold=40.0), logits)


@dataclass(frozen=True)
class InverseFocal(Method):
    """Weighs confident samples more, to be followed by a temperature: as trained, calibration gets
    worse, and the paper means it to."""

    gamma: float = number(2.0, low=0, doc="exponent of 1 + p_y")
    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return inverse_focal_loss(logits, require_labels(self, targets), self.gamma)
