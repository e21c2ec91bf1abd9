"""Focal loss beside cross-entropy: a method of a user's own, as one may write it."""

import json
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from trainables.fields import number
from trainables.method import Method, require_labels
from trainables.methods.cross_entropy import CrossEntropy
from trainables.methods.focal import focal_loss

GAMMA = json.loads(Path(__file__).with_suffix(".json").read_text())["published"]


@dataclass(frozen=True)
class SoftFocal(Method):
    gamma: float = number(GAMMA, low=0, doc="focusing parameter")
    share: float = number(0.5, low=0, high=1, doc="of the focal loss")

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        plain = CrossEntropy().loss(logits, targets, progress)
        focal = focal_loss(logits, require_labels(self, targets), self.gamma)
        return self.share * focal + (1 - self.share) * plain
