"""This machine with a small disk of its own for the studies."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress

from benchmarks.chaos.stage import Ground, Stage, Strike, by_kind

MEGABYTES = 128
FULL = "No space left on device: "
SAID_SECONDS = 60.0


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


def disk_full_said(stage: Stage) -> Strike:
    """Somebody fills the disk, until the run says so within a minute; it goes on, and no trial has
    failed for it."""
    pid, filler = stage.driver_pid(), stage.ground.storage / "filler"
    said, began = stage.printed(FULL), time.monotonic()
    with filler.open("ab", buffering=0) as file:
        while stage.printed(FULL) == said and time.monotonic() - began < SAID_SECONDS:
            with suppress(OSError):
                while True:
                    file.write(bytes(4096))
            time.sleep(0.05)
    seconds = time.monotonic() - began
    wrong = [] if stage.printed(FULL) > said else [f"not said within {seconds:.0f} s"]
    print(f"    said after {seconds:.0f} s", flush=True)
    filler.unlink()
    wrong += [name for name, one in stage.records().items() if one.state == "failed"]
    return Strike(pid, check=lambda: wrong)


class Disk(Ground):
    """A tmpfs of MEGABYTES under the studies."""

    faults = by_kind(disk_full, disk_full_said)

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
