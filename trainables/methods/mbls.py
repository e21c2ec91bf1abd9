"""Margin-based label smoothing. Liu et al. 2022, Eq. 4, in the scale of the released code."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from trainables.fields import number
from trainables.method import Method
from trainables.vectorized import cross_entropy, mean


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
    """margin 0 penalises every distance to the largest logit: the paper's ablation, and MaxSup
    (Zhou et al. 2025), whose penalty is that mean, max_j z_j less the mean of the logits.

    weight_end: MaxSup's weight grows linearly with the fraction of training done, by step here, by
    epoch in its released code, where it goes from 0.1 to 0.2.
    """

    margin: float = number(10.0, low=0, doc="logit distance without penalty")
    weight: float = number(0.1, low=0, doc="weight of the penalty, a mean over samples and classes")
    weight_end: float | None = number(
        None, low=0, doc="weight at the end of training, reached linearly; null: constant"
    )
    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        weight: float | Tensor = self.weight
        if self.weight_end is not None:
            weight = weight + (self.weight_end - weight) * progress
        return mbls_loss(logits, targets, self.margin, weight)
