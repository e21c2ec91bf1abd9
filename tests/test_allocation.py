"""Memory that a step frees is there for the next one."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from trainables.allocation import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
for step in range(12):
    if step == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [np.ones(2**24, np.uint8) for _ in range(4)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_large_blocks_are_not_faulted_in_again() -> None:
    """Ten steps of 64 MiB, 16,384 pages each."""
    found = {
        how: int(
            subprocess.run(
                [sys.executable, "-c", FAULTS, how], capture_output=True, check=True
            ).stdout
        )
        for how in ("kept", "as it is")
    }
    assert found["kept"] < 16_384 / 4 and found["kept"] < found["as it is"] / 4
