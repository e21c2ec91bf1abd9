"""Every metric as a plain function of logits [N, K] and labels [N], by its name:
`calstudy.metrics.ece(logits, labels)`. `calstudy list metrics` describes them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def __getattr__(name: str) -> "Callable[..., Tensor]":
    from trainables.metrics import find, ours

    if name not in ours():
        raise AttributeError(f"module 'calstudy.metrics' has no attribute '{name}'")
    return find(name)


def __dir__() -> list[str]:
    from trainables.metrics import ours

    return [*ours()]
