"""The data in a study's own folder, given as objects in Python: its path goes where that goes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainables.plain import Plain

DATA = "data"  # the folder of the study's folder
ARRAYS = "arrays"  # the data set that reads it


def as_recorded(data: Plain, directory: Path, confirms: str | None) -> Plain:
    """The data as study.yaml has them: relative if they lie in the study's folder, or in that of
    the study that it confirms, beside it."""
    if not isinstance(data, Mapping) or data.get("name") != ARRAYS:
        return data
    own = [directory] if confirms is None else [directory, directory.with_name(confirms)]
    for folder in own:
        if data.get("path") == os.path.abspath(folder / DATA):
            return {**data, "path": os.path.relpath(folder / DATA, directory)}
    return data


def moved_with_study(data: Mapping[str, Plain], storage: Path) -> Mapping[str, Plain]:
    """The data as a model's record has them, which are now in the study's folder in the storage."""
    if data["name"] != ARRAYS or os.path.exists(str(data["path"])):
        return data
    here = storage / Path(str(data["path"])).parent.name / DATA
    return {**data, "path": str(here)} if here.exists() else data
