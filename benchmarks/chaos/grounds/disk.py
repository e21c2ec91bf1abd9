"""This machine with a small disk of its own for the studies."""

from __future__ import annotations

import os
import subprocess
import time

from benchmarks.chaos.stage import Ground, Stage, Strike, by_kind

MEGABYTES = 128


def disk_full(stage: Stage) -> Strike:
    """Somebody fills the disk, and frees it after a while; the driver should live through it."""
    pid, filler = stage.driver_pid(), stage.ground.storage / "filler"
    until = time.monotonic() + stage.random.uniform(4.0, 10.0)
    with filler.open("ab", buffering=0) as file:
        while time.monotonic() < until:
            try:
                while True:
                    file.write(bytes(65536))
            except OSError:
                time.sleep(0.05)
    filler.unlink()
    return Strike(pid)


class Disk(Ground):
    """A tmpfs of MEGABYTES under the studies."""

    faults = by_kind(disk_full)

    @classmethod
    def refusal(cls) -> str | None:
        return None if os.geteuid() == 0 else "only root mounts a disk"

    def __enter__(self) -> Ground:
        super().__enter__()
        options = ["-t", "tmpfs", "-o", f"size={MEGABYTES}m", "chaos", str(self.storage)]
        subprocess.run(["mount", *options], check=True)
        return self

    def __exit__(self, *fault: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.storage)], check=True)
