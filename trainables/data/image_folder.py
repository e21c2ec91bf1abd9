"""Images in folders: one per split, with one per class inside, as for torchvision's ImageFolder."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torchvision.datasets.folder import IMG_EXTENSIONS, find_classes, make_dataset

from trainables.data.shared.images import ImageFiles, ImageList, check_lists
from trainables.data.shared.splits import check_splits, split_names
from trainables.fields import FieldError, nearest, text


@dataclass(frozen=True, kw_only=True)
class ImageFolder(ImageFiles):
    """PATH/train/CLASS/*.png and so on; classes are sorted by name. If the class folders are directly in PATH,
    `splits: {train: .}` makes them train, and test is carved by seed.

    Without `splits`, folders named train, validation (valid, val, dev) and test are used; with only train and
    validation, the latter becomes the sealed test split. With `splits`, other folders are ignored.
    """

    splits: dict[str, str] | None = text(None, doc="folder of each split, e.g. {train: train, test: val}")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_splits(self.splits)

    def lists(self) -> tuple[tuple[str, ...], dict[str, ImageList]]:
        names = split_names(self.splits, self._folders(), self.path)
        classes = self._classes(names["train"])
        numbers = {name: number for number, name in enumerate(classes)}
        lists = {}
        for ours, theirs in names.items():
            for name in self._classes(theirs):
                if name not in numbers:
                    problem = f"{ours} has the class '{name}', which train does not have.{nearest(name, classes)}"
                    raise FieldError("path", f"{self.path}: {problem} Rename or remove it.")
            found = make_dataset(str(Path(self.path) / theirs), numbers, IMG_EXTENSIONS, allow_empty=True)
            lists[ours] = ImageList(
                [Path(file) for file, _ in found], np.array([label for _, label in found], np.int64)
            )
        check_lists(self.path, classes, lists)
        return tuple(classes), lists

    def _folders(self) -> list[str]:
        """Candidates for splits: the folders in PATH, and PATH itself if `splits` names it."""
        if not Path(self.path).is_dir():
            found = "is not a folder" if Path(self.path).exists() else "does not exist"
            raise FieldError("path", f"{self.path} {found}; give the folder that contains one folder per split.")
        folders = sorted(entry.name for entry in Path(self.path).iterdir() if entry.is_dir())
        if not folders:
            raise FieldError("path", f"{self.path} has no subfolders; give the folder that contains one per split.")
        return [*folders, *(["."] if self.splits and "." in self.splits.values() else [])]

    def _classes(self, split: str) -> list[str]:
        try:
            names: list[str] = find_classes(Path(self.path) / split)[0]
        except FileNotFoundError:
            raise FieldError("path", f"{Path(self.path) / split} has no class folders; add one per class.") from None
        return names
