"""The file that was meant, where one is missing."""

from collections.abc import Collection
from pathlib import Path

from trainables.problems import nearest


def nearest_file(path: Path, endings: Collection[str]) -> str:
    """The mend "Did you mean 'one.yaml'?" of a file of such an ending beside it; else nothing."""
    try:
        there = [one.name for one in path.parent.iterdir() if one.suffix.lower() in endings]
    except OSError:
        return ""
    mend = nearest(path.name, there)
    return mend if mend.startswith("Did you mean") else ""


def no_such_file(path: Path) -> str:
    """What is found where a message begins with the file's name, and not with its folder."""
    folder = "" if path.parent == Path() else f" in {path.parent}"
    return f"there is no such file{folder}"
