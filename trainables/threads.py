"""Process many arrays on all cores: NumPy and torch release Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

MOST = 8  # each holds arrays of its own

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of `call`, in order; the first error ends it.

    Each call uses one torch thread: on small arrays more threads mostly wait for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(min(MOST, os.cpu_count() or 1)) as pool:
            return list(pool.map(call, items))
    finally:
        torch.set_num_threads(threads)
