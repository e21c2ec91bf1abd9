"""Trials that take memory until somebody stops them, where there is little of it:
a memory cgroup of their own.

Ray's memory monitor reads what the machine has and uses from /sys/fs/cgroup; there,
the processes of this ground see their own cgroup. So the limit is theirs alone, and
the kernel holds them to it if Ray does not.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.chaos.grounds.trials import Trials, _fault
from benchmarks.chaos.processes import wait_for
from benchmarks.chaos.stage import Ground

CGROUPS = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 4 << 30
# Ray acts well before the kernel would.
THRESHOLD = "0.8"
_ENTER = 'echo $$ >"$0/cgroup.procs"; mount --bind "$0" /sys/fs/cgroup/memory; exec "$@"'


class Memory(Trials):
    """As `Trials`, with less memory."""

    faults: ClassVar = {"trial_leaks": _fault("leaks")}

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
