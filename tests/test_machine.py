"""The machine: what its cgroups allow, and memory that a step frees is there for the next one."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from trainables.machine import free_memory, memory

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

FAULTS = """
import resource, sys
import numpy as np
from trainables.machine import keep_freed_memory

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


def machine(root: Path, own: str, **files: str) -> Path:
    """Our own cgroups, and files under /sys/fs/cgroup by their paths, with __ for /."""
    given = {f"sys/fs/cgroup/{name}": files[name] for name in files}
    for name, text in {"proc/self/cgroup": own, **given}.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/job_7/step\n", {}, PHYSICAL),
        ("0::/job_7/step\n", {"job_7__step__memory.max": "4096000\n"}, 4096000),
        (
            "0::/job_7/step\n",
            {"job_7__memory.max": "4096000\n", "job_7__step__memory.max": "max\n"},
            4096000,
        ),
        ("0::/\n", {"memory.max": "4096000\n"}, 4096000),
        ("0::/\n", {"memory.max": f"{PHYSICAL * 2}\n"}, PHYSICAL),
        (
            "4:memory:/slurm/job_7\n0::/\n",
            {"memory__slurm__job_7__memory.limit_in_bytes": "4096000\n"},
            4096000,
        ),
        ("4:memory:/slurm/job_7\n0::/\n", {"memory__memory.limit_in_bytes": "4096000\n"}, 4096000),
        (
            "4:memory:/\n0::/\n",
            {"memory__memory.limit_in_bytes": "9223372036854771712\n"},
            PHYSICAL,
        ),
    ],
)
def test_memory_is_what_the_cgroups_allow(
    tmp_path: Path, own: str, files: dict[str, str], expected: int
) -> None:
    assert memory(machine(tmp_path, own, **files)) == expected


STAT = "anon 5\ninactive_file 300\nactive_file 7\n"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {}, 8_192_000),
        ("0::/\n", {"memory.max": "max\n", "memory.current": "100\n"}, 8_192_000),
        ("0::/\n", {"memory.max": "1000\n", "memory.current": "900\n"}, 100),
        (
            "0::/\n",
            {"memory.max": "1000\n", "memory.current": "900\n", "memory.stat": STAT},
            400,
        ),
        (
            "0::/job_7/step\n",
            {"job_7__memory.max": "1000\n", "job_7__memory.current": "900\n"},
            100,
        ),
        (
            "4:memory:/slurm\n0::/\n",
            {
                "memory__slurm__memory.limit_in_bytes": "1000\n",
                "memory__slurm__memory.usage_in_bytes": "900\n",
                "memory__slurm__memory.stat": f"{STAT}total_inactive_file 350\n",
            },
            450,
        ),
    ],
)
def test_free_is_what_the_machine_and_the_cgroups_leave(
    tmp_path: Path, own: str, files: dict[str, str], expected: int
) -> None:
    """1,000 bytes allowed, 900 used, of which those of inactive files can be had."""
    root = machine(tmp_path, own, **files)
    assert free_memory(tmp_path / "no proc") is None
    (root / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert free_memory(root) == expected
