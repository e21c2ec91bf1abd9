"""Margin-based label smoothing. Liu et al. 2022, Eq. 4, in the scale of the released code."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from trainables.at_once import cross_entropy, mean
from trainables.fields import number
from trainables.method import Method


def mbls_loss(
    logits: Tensor, targets: Tensor, margin: float | Tensor, weight: float | Tensor
) -> Tensor:
    """Cross-entropy + weight * mean over samples *and* classes of max(0, max_j z_j - z_k - margin).

    logits: [N, K] float. targets: labels [N] int64, or soft [N, K]. margin >= 0, in logit units.
    weight >= 0. The paper's Eq. 4 sums over classes; its code takes the mean, so weight here is K
    times the paper's lambda, and the published margin 10, weight 0.1 have the same meaning. Tied
    largest logits share the gradient (`amax`); the released code gives it all to one of them.
    """
    distance = (logits.amax(dim=-1, keepdim=True) - logits).flatten(-2 if logits.ndim == 3 else -1)
    return cross_entropy(logits, targets) + weight * mean(F.relu(distance - margin), logits)


@dataclass(frozen=True)
class Mbls(Method):
    """margin 0 penalises every distance to the largest logit, as in the paper's ablation."""

    margin: float = number(10.0, low=0, doc="logit distance without penalty")
    weight: float = number(0.1, low=0, doc="weight of the penalty, a mean over samples and classes")
    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return mbls_loss(logits, targets, self.margin, self.weight)
