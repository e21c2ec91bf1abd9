"""What is computed for several trials at once, by `torch.func.vmap`."""

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


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """`F.cross_entropy`, which PyTorch takes apart in Python under vmap, at seven times the
    cost."""
    if _at_once.get() and targets.ndim == 1:
        return -F.log_softmax(logits, dim=-1).gather(-1, targets[:, None]).mean()
    return F.cross_entropy(logits, targets)
