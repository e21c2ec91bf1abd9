"""This machine with small disks that fill up: the folder for temporary files, or the inodes
of the studies' disk."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.chaos.grounds.disk import Disk
from benchmarks.chaos.stage import INTERRUPTED, Ground, Stage, Strike, by_kind

TMP_MEGABYTES, INODES = 64, 4096
# Somebody fills it for so long.
LEAST_SECONDS, MOST_SECONDS = 4.0, 10.0
START_SECONDS = 120.0


def tmp_full(stage: Stage) -> Strike:
    """The folder for temporary files fills up: under a driver at work, which lives through it,
    or before one starts."""
    folder = stage.ground.directory / "tmp"
    if stage.random.random() < 0.5:
        pid = stage.driver_pid()
        _filled(stage, folder, _a_file)
        return Strike(pid)
    pid, seen = stage.stop_driver(), stage.seen()
    filler = folder / "filler"
    _a_file(filler)
    stage.start()
    stage.driver_may_end()
    stage.wait_for_end(START_SECONDS, "a full folder for temporary files", INTERRUPTED)
    filler.unlink()
    stage.start()
    return Strike(pid, taken_up=2, seen=seen)


def inodes_full(stage: Stage) -> Strike:
    """Somebody makes as many files as the studies' disk can have, and removes them after
    a while."""
    pid = stage.driver_pid()
    _filled(stage, stage.ground.storage, _many_files)
    return Strike(pid)


def _filled(stage: Stage, folder: Path, fill: Callable[[Path], None]) -> None:
    until = time.monotonic() + stage.random.uniform(LEAST_SECONDS, MOST_SECONDS)
    filler = folder / "filler"
    while time.monotonic() < until:
        fill(filler)
        time.sleep(0.05)
    _remove(filler)


def _a_file(filler: Path) -> None:
    try:
        with filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(65536))
    except OSError:
        return


def _many_files(filler: Path) -> None:
    try:
        filler.mkdir(exist_ok=True)
        for number in range(len(list(filler.iterdir())), INODES):
            (filler / str(number)).touch()
    except OSError:
        return


def _remove(filler: Path) -> None:
    if filler.is_dir():
        for file in filler.iterdir():
            file.unlink()
        filler.rmdir()
    else:
        filler.unlink()


class Full(Disk):
    """A tmpfs for temporary files, and one of few inodes under the studies."""

    faults = by_kind(tmp_full, inodes_full)

    def __enter__(self) -> Ground:
        Ground.__enter__(self)
        self._mount(f"size={TMP_MEGABYTES}m", self.directory / "tmp")
        self._mount(f"size=128m,nr_inodes={INODES}", self.storage)
        return self

    def __exit__(self, *fault: object) -> None:
        super().__exit__(*fault)
        subprocess.run(["umount", "--lazy", str(self.directory / "tmp")], check=True)

    @staticmethod
    def _mount(options: str, at: Path) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", str(at)], check=True)
