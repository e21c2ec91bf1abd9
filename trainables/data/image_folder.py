"""Images in folders, one per class: in a folder per split, as for torchvision, or without."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from torchvision.datasets.folder import IMG_EXTENSIONS, find_classes, make_dataset

from trainables.data.shared.groups import groups_of_files
from trainables.data.shared.images import ImageFiles, ImageList, check_lists
from trainables.data.shared.left_out import left_out
from trainables.data.shared.splits import KNOWN_NAMES, check_splits, split_names
from trainables.fields import path_text, setting
from trainables.files.data_files import digest_of
from trainables.problems import FieldError, nearest


@dataclass(frozen=True, kw_only=True)
class ImageFolder(ImageFiles):
    """PATH/train/CLASS/*.png and so on, or PATH/CLASS/*.png, all train. Classes: sorted by name.

    Without `splits`, folders named train, validation (valid, val, dev) and test are used; with only
    train and validation, the latter becomes the sealed test split. With `splits`, other folders are
    ignored; `{train: .}` says that every folder is a class.
    """

    splits: dict[str, str] | None = setting(
        None, doc="folder of each split, e.g. {train: train, test: val}"
    )
    group: str | None = path_text(
        None,
        doc=(
            "csv with `file` (below PATH) and `group`: images that belong together; no two splits"
            " share any"
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_splits(self.splits)

    @property
    def unit(self) -> str | None:
        return None if self.group is None else "groups"

    def _digests(self) -> tuple[str, list[str]]:
        found, orientations = super()._digests()
        if self.group is not None:
            both = f"{found} {digest_of('group', Path(self.group))}"
            found = hashlib.sha256(both.encode()).hexdigest()
        return found, orientations

    def left_out(self) -> Mapping[str, int]:
        root = Path(self.path)
        folders = self._split_folders().values()
        return left_out(root / split / name for split in folders for name in self._classes(split))

    def lists(self) -> tuple[tuple[str, ...], dict[str, ImageList]]:
        names = self._split_folders()
        classes = self._classes(names["train"])
        numbers = {name: number for number, name in enumerate(classes)}
        lists = {}
        for ours, theirs in names.items():
            for name in self._classes(theirs):
                if name not in numbers:
                    found = f"{ours} has the class '{name}', which train does not have"
                    mend = f"{nearest(name, classes)} Rename or remove it."
                    raise FieldError("path", f"{self.path}: {found}", mend)
            folder = str(Path(self.path) / theirs)
            found = make_dataset(folder, numbers, IMG_EXTENSIONS, allow_empty=True)
            files = [Path(file) for file, _ in found]
            lists[ours] = ImageList(files, np.array([label for _, label in found], np.int64))
        check_lists(self.path, classes, lists)
        return tuple(classes), lists if self.group is None else self._grouped(lists)

    def _grouped(self, lists: dict[str, ImageList]) -> dict[str, ImageList]:
        """The lists with the group of each file."""
        assert self.group is not None
        files = chain.from_iterable(listed.files for listed in lists.values())
        places = [Path(os.path.relpath(file, self.path)).as_posix() for file in files]
        groups = groups_of_files(self.group, self.path, places)
        ends = np.cumsum([len(listed.files) for listed in lists.values()])
        parts = zip(lists.items(), np.split(groups, ends[:-1]), strict=True)
        return {name: listed._replace(groups=part) for (name, listed), part in parts}

    def _split_folders(self) -> dict[str, str]:
        """The folder of each split, below PATH."""
        folders = self._folders()
        if self._are_classes(folders):
            return {"train": "."}
        return split_names(self.splits, folders, self.path)

    def _folders(self) -> list[str]:
        """Candidates for splits: the folders in PATH, and PATH itself if `splits` names it."""
        fix = "Give the folder that contains one folder per class or split."
        if not Path(self.path).is_dir():
            found = "is not a folder" if Path(self.path).exists() else "does not exist"
            raise FieldError("path", f"{self.path} {found}", fix)
        folders = sorted(entry.name for entry in Path(self.path).iterdir() if entry.is_dir())
        if not folders:
            raise FieldError("path", f"{self.path} has no subfolders", fix)
        if self.splits and "." in self.splits.values():
            folders.append(".")
        return folders

    def _are_classes(self, folders: list[str]) -> bool:
        """`splits` is absent and the folders are classes. Raises FieldError in doubt."""
        if self.splits is not None:
            return False
        root = Path(self.path)
        with_images = [name for name in folders if _has_images(root / name)]
        known = set(chain.from_iterable(KNOWN_NAMES.values()))
        named = [name for name in folders if name.lower() in known]
        train = [root / name for name in named if name.lower() in KNOWN_NAMES["train"]]
        inside = chain.from_iterable(folder.iterdir() for folder in train)
        if not with_images or any(entry.is_dir() for entry in inside):
            return False
        if not named and with_images == folders:
            return True
        found = f"'{with_images[0]}' has images in it like a class"
        if named:
            found = f"'{named[0]}' has the name of a split, {found}"
        else:
            other = next(name for name in folders if name not in with_images)
            found = f"{found}, '{other}' has none"
        case = f"If every folder of {self.path} is a class, write `splits: {{train: .}}`"
        raise FieldError("splits", found, f"{case}; else name the splits.")

    def _classes(self, split: str) -> list[str]:
        try:
            names: list[str] = find_classes(Path(self.path) / split)[0]
        except FileNotFoundError:
            raise FieldError(
                "path", f"{Path(self.path) / split} has no class folders", "Add one per class."
            ) from None
        return names


def _has_images(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(entry.name.lower().endswith(IMG_EXTENSIONS) for entry in entries)
