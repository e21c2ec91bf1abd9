"""Focal loss beside cross-entropy: a method of a user's own, as one may write it."""

from dataclasses import dataclass

from torch import Tensor

from trainables.fields import number
from trainables.method import Method, require_labels
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.focal import focal_loss


@dataclass(frozen=True)
class SoftFocal(Method):
    gamma: float = number(2.0, low=0, doc="focusing parameter")
    share: float = number(0.5, low=0, high=1, doc="of the focal loss")

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        plain = CrossEntropy().loss(logits, targets, progress)
        return (
            self.share * focal_loss(logits, require_labels(self, targets), self.gamma)
            + (1 - self.share) * plain
        )
