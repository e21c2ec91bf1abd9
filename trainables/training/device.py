"""The device of a trial: which, how much of it, and whether torch can use it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainables.machine import GPU_MEND, keep_freed_memory
from trainables.plugins import in_a_line
from trainables.problems import UserError

# Bytes of a GPU that a process takes beside what PyTorch allocates: CUDA's context and libraries.
# An H200 with CUDA 13.0: 605 MiB (`python -m benchmarks.gpu`, "context MiB").
CONTEXT = 700 * 2**20


class NodeUnfit(UserError):
    """This node lacks what a trial needs and the driver has: a mount, data, a usable GPU.

    nowhere: no other node would do either.
    """

    def __init__(self, found: str, mend: str = "", nowhere: bool = False) -> None:
        super().__init__(found, mend)
        self.nowhere = nowhere


def prepared_device(resources: dict[str, float]) -> torch.device:
    """The device of a trial, whose share of this machine (cpu, gpu) this process then uses."""
    torch.set_num_threads(max(1, int(resources["cpu"])))
    device = device_for(resources["gpu"])
    if device.type == "cpu":
        keep_freed_memory()
    return device


def device_for(gpu: float) -> torch.device:
    """The device of a trial with `gpu` of a GPU; a fraction also limits its share of the memory.

    $CALSTUDY_DEVICE overrides it, for test clusters with simulated GPUs. Raises NodeUnfit if torch
    cannot use the GPU that Ray assigned: another node's may do.
    """
    if gpu == 0:
        return torch.device("cpu")
    device = torch.device(os.environ.get("CALSTUDY_DEVICE") or "cuda")
    if device.type == "cuda":
        with _unfit_unless_usable():
            total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(memory_share(gpu, total))
    return device


def memory_share(gpu: float, total: int) -> float:
    """The share of a GPU's `total` bytes that PyTorch may use for `gpu` of it: without CONTEXT, at
    least half."""
    if gpu >= 1:
        return 1.0
    return max(gpu / 2, gpu - CONTEXT / total)


@functools.cache
def check_device(device: torch.device, precision: str) -> None:
    """Raise NodeUnfit if torch cannot compute in this precision on a GPU: its driver may be too
    old, or its architecture not be in this build of torch. Asked once per process."""
    if device.type != "cuda":
        return
    if precision == "bfloat16" and not torch.cuda.is_bf16_supported(False):
        found = f"has a GPU without bfloat16 ({torch.cuda.get_device_name(device)})"
        raise NodeUnfit(found, "Write `precision: float32`.")
    with _unfit_unless_usable():
        ones = torch.ones(64, 64, device=device, dtype=getattr(torch, precision))
        (ones @ ones).sum().item()


@contextmanager
def _unfit_unless_usable() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if ran_out_of_memory(error):  # others use it
            raise
        found = f"has no GPU that torch can use ({in_a_line(error)})"
        raise NodeUnfit(found, GPU_MEND) from None


def ran_out_of_memory(error: BaseException) -> bool:
    """The device ran out of memory; CUDA's libraries raise their own errors for it."""
    told = _says(error, "CUDA error: out of memory|_ALLOC_FAILED")
    return told or isinstance(error, torch.OutOfMemoryError)


def gpu_is_lost(error: BaseException) -> bool:
    """CUDA gave an error other than too little memory: the process has lost its GPU."""
    return _says(error, "CUDA error|(CUBLAS|CUDNN)_STATUS_")


def _says(error: BaseException, words: str) -> bool:
    return isinstance(error, RuntimeError) and re.search(words, str(error)) is not None
