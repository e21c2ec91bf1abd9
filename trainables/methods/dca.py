"""Difference between confidence and accuracy (DCA) as an auxiliary loss. Liang et al. 2020."""

from dataclasses import dataclass, field

from torch import Tensor

from trainables.fields import number
from trainables.method import AuxiliaryMethod, Method
from trainables.methods.cross_entropy import CrossEntropy


def confidence_difference(logits: Tensor, labels: Tensor) -> Tensor:
    """|mean confidence - accuracy| of the batch, in [0, 1].

    logits: [N, K] float. labels: [N] int64. Hits are constants; the gradient of |.| at 0 is 0.
    """
    confidence, predicted = logits.softmax(dim=-1).max(dim=-1)
    hits = (predicted == labels).to(logits.dtype)
    return (confidence.mean() - hits.mean()).abs()


@dataclass(frozen=True)
class Dca(AuxiliaryMethod):
    """base loss + weight * DCA of the batch. Gaps of opposite sign cancel between confidences."""

    weight: float = number(10.0, low=0, doc="weight of the DCA term")
    base: Method = field(
        default_factory=CrossEntropy, metadata={"doc": "the loss the term is added to"}
    )

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        return confidence_difference(logits, labels)
