"""What a folder contains, to the byte, and what of it has changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

# They say who holds a lock, or held it last.
LOCKS = ("driver.lock", ".driver")


def contents(folder: Path) -> dict[str, str]:
    """Of every file its digest, of every link its target, by path. Locks are left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"a link to {os.readlink(path)}"
        elif path.is_dir():
            found[name] = "a folder"
        elif not name.endswith(LOCKS):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """A line for each path that is new, gone or other than it was."""
    return [
        f"{'created' if name not in before else 'removed' if name not in after else 'changed'}:"
        f" {name}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
