"""Intersection over union: how well the predicted regions of each class meet the true ones."""

import torch
from torch import Tensor

METRICS = {
    "miou": {"place": 33, "function": "mean_intersection_over_union", "kind": "overlap",
        "better": "higher", "label": "mIoU", "matters": 0.01},
    "miou_without_0": {"place": 34, "function": "mean_intersection_over_union_without_0",
        "kind": "overlap", "better": "higher", "label": "mIoU without class 0", "matters": 0.01},
}  # fmt: skip


def mean_intersection_over_union(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over classes of intersection / union, each pooled over all rows.

    A class that is neither a label nor predicted has no union: it is left out of the mean.
    """
    return _mean(logits, labels, first=0)


def mean_intersection_over_union_without_0(logits: Tensor, labels: Tensor) -> Tensor:
    """The same mean without class 0, the background; NaN if no other class occurs.

    As in the code of Liu et al. 2022, whose mean counts a class that does not occur as 0.
    """
    return _mean(logits, labels, first=1)


def _mean(logits: Tensor, labels: Tensor, first: int) -> Tensor:
    """Over the classes from `first` on."""
    predicted = logits.argmax(dim=-1)
    right = (predicted == labels).double()
    one = torch.ones_like(right)
    intersection, truth, found = right.new_zeros(3, logits.shape[1])
    intersection.index_add_(0, labels, right)
    truth.index_add_(0, labels, one)
    found.index_add_(0, predicted, one)
    union = truth + found - intersection
    return (intersection / union)[first:].nanmean()
