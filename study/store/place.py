"""Whether a study can be written where its results are to go. `plan` asks, and so does `run`."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from study.schema.errors import SpecError

GIVE_ANOTHER = "Give another folder with --storage."
FULL = (errno.ENOSPC, errno.EDQUOT)


def check_place(file_name: str, directory: Path, ledger: str | None = None) -> None:
    """Raise SpecError if the study's folder, or its ledger's, cannot be made or written to.

    What can be is left as it is.
    """
    _check_folder(file_name, "storage", directory, GIVE_ANOTHER)
    if ledger is not None:
        _check_folder(file_name, "ledger", Path(ledger).parent, "Give another path.")


def check_room(file_name: str, directory: Path, needed: float) -> None:
    """Raise SpecError if the folder's disk has less room than the bytes that are predicted."""
    there = nearest_there(directory)
    free = shutil.disk_usage(there).free
    if free < needed:
        found = f"{there} has {_gigabytes(free)} free, and what is to be trained takes about"
        mend = f"Free some, train fewer trials, keep fewer models, or: {GIVE_ANOTHER}"
        raise SpecError(file_name, "storage", f"{found} {_gigabytes(needed)}", mend)


def nearest_there(path: Path) -> Path:
    """The path, or the nearest part of it that exists: a folder, unless it stands in the way."""
    path = path.absolute()
    return next(part for part in (path, *path.parents) if os.path.lexists(part))


def _check_folder(file_name: str, key: str, folder: Path, mend: str) -> None:
    there = nearest_there(folder)
    if not there.is_dir():
        what = "is a link to nothing" if there.is_symlink() and not there.exists() else "is a file"
        raise SpecError(file_name, key, f"{there} {what}, where a folder is needed", mend)
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".calstudy-", dir=there))
    except OSError as error:
        if error.errno in FULL:  # space is often freed
            raise
        found = f"no folder can be made in {there} ({error.strerror or error})"
        raise SpecError(file_name, key, found, mend) from None


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
