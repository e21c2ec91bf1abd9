"""Where a study lies: one home, known by its path and inode, so that no copy of it is run."""

from __future__ import annotations

from pathlib import Path

from study.schema.errors import SpecError
from study.store.recorded import Home
from study.store.study import StudyFolder


def home_of(directory: Path) -> Home:
    return Home(str(directory), directory.stat().st_ino)


def check_home(study: StudyFolder) -> None:
    """Raise the SpecError of `away_from_home`."""
    if error := away_from_home(study):
        raise error


def away_from_home(study: StudyFolder) -> SpecError | None:
    """What is wrong with a copy of a study, and with an original of which a copy went on: two
    studies of one identity would count a trial twice.

    A study that was moved or is mounted elsewhere keeps its inode; a copy that replaces the
    original keeps its path. A cloned disk keeps all inodes: it is told by the original, where that
    is still at its path.
    """
    home = study.recorded.home
    here = home_of(study.directory)
    if home is None or home.path == here.path:
        return None
    if home.inode == here.inode and not _is_beside(Path(home.path), study.directory):
        return None
    moves = study.command(study.resumed_by, moved=True)
    return SpecError(
        str(study.directory),
        "",
        f"is not the study's home, which is {home.path}",
        f"Run it there; or, if that folder is gone: `{moves}`.",
    )


def _is_beside(original: Path, copy: Path) -> bool:
    """Whether the original, with the same inode, is still there as well."""
    try:
        there = original.stat()
        here = copy.stat()
    except OSError:
        return False
    return there.st_ino == here.st_ino and there.st_dev != here.st_dev
