"""What a CUDA graph does, on the CPU: a call is recorded, operation by operation, and played
again on the same memory.

Python is not run again: a number, a branch or a tensor that was new in the recorded
call stays as it was. As in a capture, the recorded call changes nothing, and reading
a value ends it with an error.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# In training it changes the running statistics, which its schema does not say.
CHANGES = {"native_batch_norm"}
READS = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero"}


def tensors(values: Any) -> list[Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, Tensor)]


def place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Reading(TorchDispatchMode):
    """Notes the operations that read a value."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads += {func.overloadpacket.__name__} & READS
        return func(*args, **(kwargs or {}))


class Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[tuple[int, Tensor]]]] = []
        self.made: set[int] = set()
        self.before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.alive: list[Any] = []  # so that no memory is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        if name in READS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        inputs = tensors((args, kwargs))
        if func._schema.is_mutable or name in CHANGES:
            for each in inputs:
                if place(each) not in self.made and place(each) not in self.before:
                    storage = each.untyped_storage()
                    self.before[place(each)] = storage, storage.clone()
        result = func(*args, **kwargs)
        self.alive.append((args, kwargs, result))
        given = {place(each) for each in inputs}
        new = [(at, each) for at, each in enumerate(tensors(result)) if place(each) not in given]
        self.made |= {place(each) for _, each in new}
        if new or func._schema.is_mutable:
            self.calls.append((func, args, kwargs, [] if name.startswith("empty") else new))
        return result

    def undo(self) -> None:
        for storage, before in self.before.values():
            storage.copy_(before)

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, new in self.calls:
                result = tensors(func(*args, **kwargs))
                for at, each in new:
                    each.copy_(result[at].view_as(each))  # its shape may have changed in place


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """torch's, which on a CPU reads the labels to check them."""
    return (labels[..., None] == torch.arange(num_classes)).long()


def waits(call: Callable[[], None]) -> bool:
    with Reading() as reading, patch("torch.nn.functional.one_hot", one_hot):
        call()
    return bool(reading.reads)


def capture(advance: Callable[[], None], device: torch.device) -> Callable[[], None]:
    recording, state = Recording(), torch.random.get_rng_state()
    try:
        with recording, patch("torch.nn.functional.one_hot", one_hot):
            advance()
    finally:
        recording.undo()
        torch.random.set_rng_state(state)
    return recording.replay
