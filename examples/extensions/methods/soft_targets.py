"""A method of your own: cross-entropy against targets softened by a power. An example."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from trainables import Method, number, require_labels


def soft_targets_loss(logits: Tensor, labels: Tensor, power: float | Tensor) -> Tensor:
    """Mean over the batch of -(1 - p_y^power) log p_y. logits: [N, K]. labels: [N]. power > 0."""
    log_p_y = F.log_softmax(logits, dim=-1).gather(-1, labels[:, None]).squeeze(-1)
    return (-(1 - (power * log_p_y).exp()) * log_p_y).mean()


@dataclass(frozen=True)
class SoftTargets(Method):
    """One file with one class is all a method needs; its name is the file's."""

    power: float = number(
        1.0, above=0, doc="1 is focal loss with gamma 1; larger is closer to cross-entropy"
    )

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        return soft_targets_loss(logits, require_labels(self, targets), self.power)
