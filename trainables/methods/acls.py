"""Adaptive and conditional label smoothing (ACLS). Park et al. 2023; the released code's form."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from trainables.fields import choice, number
from trainables.method import Method
from trainables.vectorized import cross_entropy, mean


def acls_loss(
    logits: Tensor,
    targets: Tensor,
    weight: float | Tensor,
    positive: float | Tensor,
    negative: float | Tensor,
    margin: float | Tensor,
    positive_on: str = "logit",
) -> Tensor:
    """Cross-entropy + weight * (positive * mean over samples of max(0, z_max - margin)^2 + negative
    * mean over samples and the other K - 1 classes of max(0, z_max - z_k - margin)^2).

    z_max is a constant in the second mean. The first penalises the largest logit itself: the loss
    changes if a constant is added to all logits. positive_on: distance takes z_max - min_k z_k
    there, which does not. logits: [N, K] float; a class that is never a label may have -inf, and is
    not penalised. targets: labels [N] int64, or soft [N, K]. margin >= 0, in logit units. Of
    tied largest logits one has the gradient, as in the released code, which counts the first mean
    once for each of them.
    """
    top, _ = logits.max(dim=-1, keepdim=True)
    masked = logits.isneginf()
    distance = (top.detach() - logits).masked_fill(masked, 0.0)
    excess = top.squeeze(-1)
    if positive_on == "distance":
        excess = excess - logits.masked_fill(masked, float("inf")).amin(dim=-1)
    own = mean(F.relu(excess - margin).square(), logits)
    # The largest itself adds 0.
    rest = F.relu(distance.flatten(-2 if logits.ndim == 3 else -1) - margin).square()
    classes = logits.shape[-1]
    penalty = positive * own + negative * mean(rest, logits) * classes / (classes - 1)
    return cross_entropy(logits, targets) + weight * penalty


@dataclass(frozen=True)
class Acls(Method):
    """Smooths the labels of confident samples alone. The loss changes if a constant is added to all
    logits, unless `positive_on: distance`."""

    weight: float = number(0.1, low=0, doc="weight of both penalties")
    positive: float = number(1.0, low=0, doc="weight of the arg-max class's penalty")
    negative: float = number(0.1, low=0, doc="weight of the other classes' penalty")
    margin: float = number(10.0, low=0, doc="logit, and logit distance, without penalty")
    positive_on: str = choice(
        "logit", "distance", doc="what the arg-max class's penalty is on; distance: to the smallest"
    )
    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        numbers = (self.weight, self.positive, self.negative, self.margin)
        return acls_loss(logits, targets, *numbers, self.positive_on)
