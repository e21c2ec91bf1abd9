"""Whether what a method gives for a loss is one, and whose hook gave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from trainables.own_class import place_of
from trainables.plugins import file_of
from trainables.problems import FieldError


def check_loss(method: object, loss: Any, hooks: Sequence[str] = ("step", "loss")) -> None:
    """Raise FieldError for a loss that is no single number, or that nothing can be learned from.

    hooks: those of a user's own that may have given it.
    """
    got = f"got {type(loss).__name__ if loss is not None else None}"
    mend = "Return a tensor, such as cross_entropy_loss(logits, targets) gives."
    if isinstance(loss, Tensor):
        if loss.requires_grad and not loss.shape:
            return
        got = f"got a tensor {list(loss.shape)}"
        mend = "Return the mean over the batch."
        if not loss.requires_grad:
            got = "got a tensor without a gradient"
            mend = "Compute it from the logits, without .detach(), .item() and torch.no_grad()."
    elif isinstance(loss, float | int):
        mend = "Return the tensor itself, without .item() or float()."
    found = f"{_given_by(method, hooks)}: a loss is one number that depends on the logits, {got}"
    raise FieldError("extensions", found, mend)


def _given_by(method: object, hooks: Sequence[str]) -> str:
    """The place of a user's own hook, of the method or of one that it wraps; else its name."""
    each: Any = method
    while each is not None:
        for hook in hooks:
            if place := place_of(getattr(type(each), hook, None)):
                return place
        each = getattr(each, "base", None)
    return file_of(type(method))
