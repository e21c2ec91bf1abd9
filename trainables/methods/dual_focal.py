"""Dual focal loss. Tao, Dong & Xu 2023, in the form of the released code."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.fields import number
from trainables.method import Method, require_labels
from trainables.methods.focal import others_of
from trainables.vectorized import mean


def dual_focal_loss(logits: Tensor, labels: Tensor, gamma: float | Tensor) -> Tensor:
    """Mean over the batch of -(1 - p_y + p_j)^gamma * log p_y, in nats; the released code sums.

    p_j, the runner-up, is the largest probability strictly below the label's: 0 if there is none,
    and of equal ones one. Gradients pass through it. logits: [N, K] float; a class that is never a
    label may have -inf. labels: [N] int64. gamma >= 0; 0 gives cross-entropy. 1 - p_y + p_j is (1 -
    p_y)(1 + p_j / (1 - p_y)), both factors as logarithms: exact and finite to second order where
    p_y rounds to 1. Probabilities are compared by their logits, before they round.
    """
    true_class = labels[..., None]
    values = logits.detach()
    # Of the negative differences the largest has the lowest reciprocal; that of 0 is inf.
    order, place = (values - values.gather(-1, true_class)).reciprocal().min(dim=-1, keepdim=True)
    none = order.squeeze(-1) >= 0  # `place` is any
    own, runner_up = logits.gather(-1, torch.cat([true_class, place], dim=-1)).unbind(-1)
    others = others_of(logits, labels)
    share = torch.exp((runner_up - others).masked_fill(none, -torch.inf))  # p_j / (1 - p_y)
    behind = others - own  # log((1 - p_y) / p_y)
    log_factor = F.logsigmoid(behind) + torch.log1p(share)
    return mean(torch.exp(gamma * log_factor) * F.softplus(behind, threshold=40.0), logits)


@dataclass(frozen=True)
class DualFocal(Method):
    """Focal loss that also raises the label's lead over the runner-up."""

    gamma: float = number(3.0, low=0, doc="focusing parameter")
    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return dual_focal_loss(logits, require_labels(self, targets), self.gamma)
