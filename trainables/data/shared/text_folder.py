"""Texts in folders, one per class: in a folder per split, or without."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trainables.data.shared.listing import Listing
from trainables.data.shared.splits import KNOWN_NAMES, split_names
from trainables.problems import FieldError, nearest

OTHERS = (*KNOWN_NAMES["validation"], *KNOWN_NAMES["test"])
LAYOUT = "Give a folder with a folder per class, or per split with one per class in it."


def folder_listing(path: Path, splits: Mapping[str, str] | None) -> Listing:
    """PATH/train/CLASS/FILE and so on, or PATH/CLASS/FILE, all train. Each file is a row.

    Classes: those of train, sorted by name. splits: the folder of each split; `{train: .}` says
    that every folder is a class. Raises FieldError.
    """
    folders = _folders(path)
    names = {"train": "."}
    if splits != names and (splits is not None or _has_splits(path, folders)):
        names = split_names(splits, folders, str(path))
    classes = _folders(path / names["train"])
    files: list[Path] = []
    labels: list[int] = []
    of_files: list[str] = []
    for theirs in names.values():
        for name in _folders(path / theirs):
            if name not in classes:
                found = f"{path / theirs} has the class '{name}', which train does not have"
                raise FieldError("path", found, f"{nearest(name, classes)} Rename or remove it.")
            inside = _files(path / theirs / name)
            files += inside
            labels += [classes.index(name)] * len(inside)
            of_files += ["train" if splits is None and theirs == "." else theirs] * len(inside)
    if not files:
        raise FieldError("path", f"no folder of {path} has a file in it", LAYOUT)
    return Listing(
        files=files,
        schemas={},
        starts=np.arange(len(files)),
        labels=np.array(labels, dtype=np.int64),
        splits=np.array(of_files),
        split_names=sorted(set(of_files)),
        class_names=classes,
        words=True,
    )


def _folders(path: Path) -> list[str]:
    entries = path.iterdir() if path.is_dir() else ()
    found = sorted(entry.name for entry in entries if entry.is_dir() and entry.name[0] != ".")
    if not found:
        raise FieldError("path", f"{path} has no folders", LAYOUT)
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(
        entry for entry in folder.iterdir() if not entry.is_dir() and entry.name[0] != "."
    )


def _has_splits(path: Path, folders: list[str]) -> bool:
    """Whether a folder has the name of train, and folders in it; or that of another split, and
    nothing but folders in it."""
    for name in folders:
        is_train = name.lower() in KNOWN_NAMES["train"]
        inside = [entry.is_dir() for entry in (path / name).iterdir() if entry.name[0] != "."]
        if is_train and any(inside):
            return True
        if inside and all(inside) and name.lower() in OTHERS:
            return True
    return False
