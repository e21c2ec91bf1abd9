"""How many CPUs of this machine are ours. Ray counts all of them, or the quota of a container."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainables.machine import in_cgroups


@dataclass(frozen=True)
class Cpus:
    """CPUs that trials may use. why: what allows no more; None if they are all the machine has."""

    count: int
    why: str | None
    machine: int

    def __str__(self) -> str:
        return (
            f"{self.count} of {self.machine} CPUs ({self.why})"
            if self.why
            else f"{self.count} CPUs"
        )


def own_cpus(
    asked: int | None = None, root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> Cpus:
    """As many as asked for, else the fewest that Slurm, the cgroups and the affinity of this
    process allow.

    root: where /proc and /sys are.
    """
    machine = os.cpu_count() or 1
    if asked is not None:
        return Cpus(asked, "--cpus" if asked != machine else None, machine)
    limits = [
        (machine, None),
        (len(os.sched_getaffinity(0)), "the CPU affinity"),
        *_slurm(environment),
    ]
    limits += [(max(1, int(quota)), "the cgroup's quota") for quota in _quotas(root)]
    count, why = min(limits, key=lambda limit: limit[0])
    return Cpus(count, why, machine)


def _slurm(environment: Mapping[str, str]) -> list[tuple[int, str | None]]:
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
        if (given := environment.get(name, "")).isdecimal() and int(given) > 0:
            return [(int(given), name)]
    return []


def _quotas(root: Path) -> Iterator[float]:
    """CPUs by the quota of each of our cgroups."""
    files = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}
    for texts in in_cgroups("cpu", files, root):
        words = " ".join(texts).split()
        if len(words) == 2 and all(word.isdecimal() and int(word) > 0 for word in words):
            yield int(words[0]) / int(words[1])  # none: -1, or max
