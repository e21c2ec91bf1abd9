"""Focal loss. Lin et al. 2017, Eq. 4; for calibration, Mukhoti et al. 2020."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.fields import number
from trainables.method import Method, require_labels
from trainables.vectorized import mean

LOWEST = -1e30  # in place of -inf, so that a logit without rivals has a finite gradient


def others_of(logits: Tensor, labels: Tensor) -> Tensor:
    """[N] log of the sum of exp(z_k) over the classes k other than y."""
    return logits.scatter(-1, labels[..., None], LOWEST).logsumexp(dim=-1)


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """[N] log(p_y / (1 - p_y)) of logits [N, K]; one of a class that is no label may be -inf."""
    return logits.gather(-1, labels[..., None]).squeeze(-1) - others_of(logits, labels)


def focal_loss(logits: Tensor, labels: Tensor, gamma: float | Tensor) -> Tensor:
    """Mean over the batch of -(1 - p_y)^gamma * log p_y, in nats.

    logits: [N, K] float. labels: [N] int64. gamma >= 0 (or [N], one per sample); 0 gives
    cross-entropy. Exact and finite to second order even where p_y rounds to 1: both logarithms are
    computed from the true logit's lead over the other classes (the naive form has NaN gradients
    there for 0 < gamma < 1, NaN second ones below 2). Where p_y rounds to 0, second gradients,
    themselves about p_y, are finite but not exact.
    """
    lead = log_odds(logits, labels)
    # -log p_y as a softplus: logsigmoid's second gradient has a factor 1 - p_y, which is 0 where
    # p_y rounds to 1.
    losses = torch.exp(gamma * F.logsigmoid(-lead)) * F.softplus(-lead, threshold=40.0)
    return mean(losses, logits)


@dataclass(frozen=True)
class Focal(Method):
    """The gradient has the modulating factor, as in both papers' code (theirs sums)."""

    gamma: float = number(3.0, low=0, doc="focusing parameter")
    elementwise = True

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return focal_loss(logits, require_labels(self, targets), self.gamma)
