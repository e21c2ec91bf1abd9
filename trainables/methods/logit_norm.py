"""Logit normalization (LogitNorm). Wei et al. 2022, in the form of the released code."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.fields import number
from trainables.method import Method
from trainables.vectorized import cross_entropy

EPSILON = 1e-7  # as in the released code


def logit_norm_loss(logits: Tensor, targets: Tensor, temperature: float | Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of z / (temperature * (|z| + 1e-7)), |z| the L2 norm of a row.

    logits: [N, K] float; a class that is never a label may have -inf, and is left out of the norm.
    targets: labels [N] int64, or soft [N, K]. temperature > 0. Where all logits are 0, as of a head
    that begins at 0, |z| is taken for 1: the released code's gradient is 1e7 / temperature there.
    """
    masked = logits == -torch.inf
    finite = logits.masked_fill(masked, 0.0)
    square = finite.square().sum(dim=-1)
    norm = torch.where(square > 0, square, 1.0).sqrt() + EPSILON
    scaled = finite / (temperature * norm)[..., None]
    return cross_entropy(scaled.masked_fill(masked, -torch.inf), targets)


@dataclass(frozen=True)
class LogitNorm(Method):
    """A training loss only: the network's own logits are evaluated. It does not change with their
    scale, so nothing fixes it, and only calibration after a temperature means something."""

    temperature: float = number(0.04, above=0, doc="temperature of the normalized logits")
    elementwise = True

    @property
    def fixes_scale(self) -> bool:
        return False

    def loss(self, logits: Tensor, targets: Tensor, progress: float | Tensor) -> Tensor:
        return logit_norm_loss(logits, targets, self.temperature)
