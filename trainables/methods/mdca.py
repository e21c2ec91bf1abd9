"""Multi-class difference of confidence and accuracy (MDCA). Hebbalaguppe et al. 2022."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainables.fields import number
from trainables.method import AuxiliaryMethod, Method
from trainables.methods.cross_entropy import CrossEntropy


def multiclass_difference(logits: Tensor, labels: Tensor) -> Tensor:
    """(1 / K) sum_k |mean_n p_nk - share of label k in the batch|, in [0, 2 / K].

    logits: [N, K] float. labels: [N] int64. The gradient of |.| at 0 is 0.
    """
    classes = torch.arange(logits.shape[-1], device=logits.device)
    shares = (labels[:, None] == classes).to(logits.dtype).mean(dim=0)
    return (logits.softmax(dim=-1).mean(dim=0) - shares).abs().mean()


@dataclass(frozen=True)
class Mdca(AuxiliaryMethod):
    """base loss + weight * MDCA of the batch; published on focal loss with gamma 1.

    Where a batch has few samples of each class, as 128 of 200 classes, it mostly measures which
    labels were drawn.
    """

    weight: float = number(1.0, low=0, doc="weight of the MDCA term")
    base: Method = field(
        default_factory=CrossEntropy, metadata={"doc": "the loss the term is added to"}
    )

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        return multiclass_difference(logits, labels)
