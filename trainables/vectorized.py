"""What is computed for several trials at once: by `torch.func.vmap`, or as one elementwise loss."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

_at_once = ContextVar("at_once", default=False)


def for_each(function: Callable[..., Any], *values: Any, in_dims: Any = 0) -> Any:
    """What a function gives of each trial's values, with a leading dimension."""
    token = _at_once.set(True)
    try:
        return vmap(function, in_dims=in_dims)(*values)
    finally:
        _at_once.reset(token)


def mean(values: Tensor, logits: Tensor) -> Tensor:
    """The mean of a trial's values, 0-dimensional; of several, whose logits are [R, B, C], the mean
    of each: [R, 1], as their numbers are."""
    return values.mean() if logits.ndim == 2 else values.flatten(1).mean(-1, keepdim=True)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """`F.cross_entropy`, which PyTorch takes apart in Python under vmap, at seven times the cost;
    of several trials as `mean` has it."""
    if logits.ndim == 3 or (_at_once.get() and targets.ndim == 1):
        values = F.log_softmax(logits, dim=-1).gather(-1, targets[..., None])
        return -mean(values, logits)
    return F.cross_entropy(logits, targets)
