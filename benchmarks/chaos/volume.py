"""Small disks: an image file behind a loop device, with a file system that can be mounted
and taken away."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

MEGABYTES = 128
TOOLS = ("mkfs.ext4", "losetup", "mount", "umount")


@functools.cache
def refusal() -> str | None:
    """Why this machine makes no such disks; None where it does."""
    if os.geteuid() != 0:
        return "only root mounts a disk"
    if lacking := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"'{lacking[0]}' is not installed"
    try:
        with tempfile.TemporaryDirectory() as folder:
            Volume(Path(folder) / "image").close()
    except OSError as error:
        return f"no disk can be made of a file here ({error})"
    return None


class Volume:
    """A disk of MEGABYTES. Where it is mounted, only its own `unmount` unmounts it."""

    def __init__(self, image: Path) -> None:
        self.image = image
        with image.open("xb") as file:
            file.truncate(MEGABYTES << 20)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        self.device = _run("losetup", "--find", "--show", str(self.image))
        self._mounted: list[Path] = []

    def mount(self, at: Path) -> None:
        """At an existing folder."""
        _run("mount", self.device, str(at))
        self._mounted.append(at)

    def unmount(self) -> None:
        """Wherever it was mounted last, at once: who has a file open keeps that, us with
        MLflow's database included."""
        _run("umount", "--lazy", str(self._mounted.pop()))

    def close(self) -> None:
        """Nothing of it is left."""
        while self._mounted:
            self.unmount()
        _run("losetup", "--detach", self.device)
        self.image.unlink()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{shlex.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()
