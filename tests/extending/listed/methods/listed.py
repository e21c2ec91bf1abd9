"""Every name that a method of an extension may import; a few of them make one."""
# ruff: noqa: F401

from dataclasses import dataclass, field

from torch import Tensor

from trainables import (
    AuxiliaryMethod,
    Batch,
    CrossEntropy,
    FieldError,
    Method,
    Mixed,
    Predictions,
    State,
    Step,
    Task,
    Trainer,
    Wrapper,
    brier_loss,
    choice,
    cross_entropy_loss,
    fit_temperature,
    focal_loss,
    label_smoothing_loss,
    mbls_loss,
    number,
    numbers,
    require_labels,
    setting,
    stream,
    text,
    trainable_for,
)


@dataclass(frozen=True)
class Listed(AuxiliaryMethod):
    """base loss + weight * (focal loss + Brier score)."""

    weight: float = number(0.1, low=0, doc="of the two terms")
    base: Method = field(default_factory=CrossEntropy)

    def prepare(self, batch: Batch, generator):
        return super().prepare(batch._replace(images=batch.images.flip(-1)), generator)

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        labels = require_labels(self, targets)
        terms = focal_loss(logits, labels, 2.0) + brier_loss(logits, labels)
        return super().loss(logits, targets, progress) + self.weight * terms
