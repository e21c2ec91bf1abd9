"""The machine a trial runs on: its cgroups, its C library's memory, its threads, NVIDIA's MPS, the
versions installed there."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

# Of glibc's malloc.h: blocks from this size on are mapped anew each time, and freed ones above it
# are given back.
MMAP_THRESHOLD = -3
TRIM_THRESHOLD = -1
# In bytes:
LARGEST_BLOCK = 2**30
MOST_FREED = 2**31 - 1
# A cgroup's, by its version: its limit, what is used, and of what parts that is.
MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"),
    2: ("memory.max", "memory.current", "memory.stat"),
}
MOST_THREADS = 8  # each holds arrays of its own
GPU_MEND = "Install a GPU driver and a build of torch that fit each other."
# The libraries whose version has an effect on what is trained.
TRAINING_LIBRARIES = ("torch", "torchvision", "numpy")

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_cgroups(
    controller: str, files: Mapping[int, tuple[str, ...]], root: Path = Path("/")
) -> Iterator[list[str]]:
    """The texts of files of our cgroup, then of each that it lies in: their limits are ours.

    files: by the cgroup's version, 1 or 2; a text is empty where there is no such file. root: where
    /proc and /sys are. A container sees its own cgroup as /.
    """
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        inside = PurePosixPath(os.path.normpath("/" + path.lstrip("/"))).relative_to("/")
        for folder in (inside, *inside.parents):
            if controllers:
                yield [_text(mount / controller / folder / name) for name in files[1]]
            else:
                yield [_text(mount / folder / name) for name in files[2]]


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def memory(root: Path = Path("/")) -> int:
    """Bytes of memory that this machine and our cgroups allow. root: where /proc and /sys are."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit, *_ in in_cgroups("memory", MEMORY_FILES, root):
        if limit.isdecimal() and int(limit) > 0:  # none: max
            limits.append(int(limit))
    return min(limits)


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that machine and cgroups leave free, inactive page cache included; None: unknown."""
    free = []
    if found := re.search(r"^MemAvailable: *(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE):
        free.append(1024 * int(found[1]))
    for limit, used, stat in in_cgroups("memory", MEMORY_FILES, root):
        if limit.isdecimal() and used.isdecimal():
            # In version 1 the name alone is without the cgroups below.
            cached = re.findall(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)
            free.append(int(limit) - int(used) + max(map(int, cached), default=0))
    return min(free, default=None)


def mps_is_running() -> bool:
    """NVIDIA's MPS serves this machine: its daemon keeps a pipe in this folder while it does.

    Processes share a GPU at the same time, and a fatal fault of one ends all.
    """
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps", "control").exists()


def keep_freed_memory() -> None:
    """Keep what a training step frees for the next one. Without glibc, nothing changes.

    glibc gives large blocks back to the system at once, and a step then waits for each page of its
    activations.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)
        mallopt(TRIM_THRESHOLD, MOST_FREED)


def versions(names: Sequence[str]) -> dict[str, str]:
    """Installed versions of distributions; "missing" if not installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def in_threads(call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of `call` on all cores, in order; the first error ends it.

    NumPy and torch release Python's lock. Each call uses one thread of theirs: more would compete
    for the cores.
    """
    threads = min(MOST_THREADS, os.cpu_count() or 1)
    of_torch = one_torch_thread() if "torch" in sys.modules else nullcontext()
    limited = _thread_pools(len(sys.modules)).limit(limits=1, user_api="blas")
    with limited, of_torch, ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, items))


@lru_cache(maxsize=1)
def _thread_pools(modules: int) -> ThreadpoolController:
    """The libraries with threads that are loaded; they are looked for, for milliseconds, where more
    modules are imported."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """On small arrays more threads mostly wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
