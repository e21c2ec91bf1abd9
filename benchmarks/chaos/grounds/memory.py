"""Trials that take memory until somebody stops them, or a neighbour that takes it, where there is
little of it: a memory cgroup of their own.

Ray's memory monitor reads what the machine has and uses from /sys/fs/cgroup; there,
the processes of this ground see their own cgroup. So the limit is theirs alone, and
the kernel holds them to it if Ray does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.chaos.grounds.trials import Trials, _fault
from benchmarks.chaos.processes import wait_for
from benchmarks.chaos.stage import Ground, Stage, Strike, by_kind

CGROUPS = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 4 << 30
# Ray acts well before the kernel would.
THRESHOLD = "0.8"
TAKEN, TAKEN_SECONDS = 0.87, 20
NEIGHBOUR_SECONDS = 120.0
_NEIGHBOUR = f"""
import pathlib, time
stat = pathlib.Path("/sys/fs/cgroup/memory/memory.stat")
held = []
while int(dict(map(str.split, stat.read_text().splitlines()))["total_rss"]) < {TAKEN * LIMIT_BYTES}:
    held.append(bytearray(b"x") * (32 << 20))
time.sleep({TAKEN_SECONDS})
"""
_ENTER = 'echo $$ >"$0/cgroup.procs"; mount --bind "$0" /sys/fs/cgroup/memory; exec "$@"'


def memory_taken(stage: Stage) -> Strike:
    """Another program takes what memory there is, for a while: no trial fails for it."""
    command = [sys.executable, "-c", _NEIGHBOUR]
    neighbour = stage.ground.popen(command, stage.ground.environment())
    neighbour.wait(NEIGHBOUR_SECONDS)

    def check() -> list[str]:
        records = stage.records().values()
        wrong = [f"{record.name} failed" for record in records if record.state == "failed"]
        killed = any("machine" in record.deaths for record in records)
        return wrong if killed else [*wrong, "nothing was killed"]

    return Strike(neighbour.pid, taken_up=1, check=check)


class Little(Ground):
    """This machine with little memory."""

    @classmethod
    def refusal(cls) -> str | None:
        if os.geteuid() == 0 and (CGROUPS / "memory.limit_in_bytes").exists():
            return None
        return "it takes root and the memory controller of cgroups, version 1"

    def __enter__(self) -> Ground:
        super().__enter__()
        self._cgroup = CGROUPS / f"chaos-{self.mark}"
        self._cgroup.mkdir()
        (self._cgroup / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
        return self

    def __exit__(self, *fault: object) -> None:
        def removed() -> bool:
            with suppress(OSError):  # a process is still ending
                self._cgroup.rmdir()
            return not self._cgroup.exists()

        wait_for(removed, 10.0)

    def environment(self) -> dict[str, str]:
        monitor = {"RAY_memory_usage_threshold": THRESHOLD, "RAY_memory_monitor_refresh_ms": "100"}
        return {**super().environment(), **monitor}

    def popen(
        self, command: list[str], environment: dict[str, str], **options: Any
    ) -> subprocess.Popen[Any]:
        inside = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            _ENTER,
            str(self._cgroup),
            *command,
        ]
        return super().popen(inside, environment, **options)


class Memory(Little, Trials):
    """Trials that take it."""

    faults: ClassVar = {"trial_leaks": _fault("leaks")}


class Crowded(Little):
    """A neighbour that takes it."""

    faults = by_kind(memory_taken)
