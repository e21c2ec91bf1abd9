"""How the C library hands out memory in a process that trains on a CPU."""

import ctypes

# Of glibc's malloc.h: blocks from this size on are mapped anew each time, and freed ones above it are given back.
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
LARGEST, MOST = 2**30, 2**31 - 1  # bytes


def keep_freed_memory() -> None:
    """Keep what a training step frees for the next one. Without glibc, nothing changes.

    glibc gives large blocks back to the system at once, and a step then waits for each page of its activations.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, MOST)
