"""Process many arrays on all cores: NumPy and torch release Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

MOST = 8  # each holds arrays of its own

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of `call`, in order; the first error ends it. Each call uses one torch thread."""
    with one_torch_thread(), ThreadPoolExecutor(min(MOST, os.cpu_count() or 1)) as pool:
        return list(pool.map(call, items))


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """On small arrays more threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
