"""Modes in which an epoch is trained, and values on their way from device to host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def repeatable(asked: bool) -> Iterator[None]:
    """Operations that give the same bits each time, where that is asked for."""
    if not asked:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    # Only a warning: pooling whose windows do not overlap is repeatable, and PyTorch does not
    # tell it apart.
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    memory.fill_uninitialized_memory = False  # a step reads none
    try:
        yield
    finally:
        memory.fill_uninitialized_memory = filled
        torch.use_deterministic_algorithms(before, warn_only=warned)


@contextmanager
def without_counters(network: nn.Module, steps: int) -> Iterator[None]:
    """Batch norm counts its batches, an operation a layer, for averages of all batches alone."""
    name = "num_batches_tracked"
    counters = {}
    for module in network.modules():
        counter = getattr(module, name, None)
        if counter is not None and getattr(module, "momentum", None) is not None:
            counters[module] = counter
            setattr(module, name, None)
    try:
        yield
    finally:
        for module, counter in counters.items():
            setattr(module, name, counter.add_(steps))


def to_host(values: Tensor) -> tuple[Tensor, Callable[[], None]]:
    """The values on the host, and what waits until they are there."""
    if not values.is_cuda:
        return values.cpu(), lambda: None
    there = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    there.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()
    return there, copied.synchronize
