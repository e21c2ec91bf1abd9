"""Our own cgroup and those it lies in: their limits are ours."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def cgroup_folders(controller: str, root: Path = Path("/")) -> Iterator[tuple[Path, int]]:
    """The folder of each cgroup, and its version, 1 or 2; a container sees its own as /.

    root: where /proc and /sys are.
    """
    mounts = root / "sys/fs/cgroup"
    for line in read_or_nothing(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        inside = PurePosixPath(os.path.normpath("/" + path.lstrip("/"))).relative_to("/")
        for folder in (inside, *inside.parents):
            yield (mounts / controller / folder, 1) if controllers else (mounts / folder, 2)


def read_or_nothing(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
