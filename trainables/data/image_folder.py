"""Images in folders: one for each split, in it one for each class, as torchvision's ImageFolder reads them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torchvision.datasets.folder import IMG_EXTENSIONS, find_classes, make_dataset

from trainables.data.shared.images import ImageFiles, ImageList, check_lists
from trainables.data.shared.splits import check_splits, split_names
from trainables.fields import FieldError, nearest, text


@dataclass(frozen=True, kw_only=True)
class ImageFolder(ImageFiles):
    """PATH/train/CLASS/*.png and so on; classes in the order of their names. Class folders right under PATH are no
    split: `splits: {train: .}` makes them train, and test is carved by seed.

    Without `splits`, train, validation (valid, val, dev) and test are known by name, and with only train and
    validation the latter is sealed as test. With `splits`, it is as written, and other folders are left out.
    """

    splits: dict[str, str] | None = text(None, doc="our split: its folder, as {train: train, test: val}")

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
                    problem = f"{ours} has the class '{name}', which train lacks.{nearest(name, classes)}"
                    raise FieldError("path", f"{self.path}: {problem} Rename it, or leave it out.")
            found = make_dataset(str(Path(self.path) / theirs), numbers, IMG_EXTENSIONS, allow_empty=True)
            lists[ours] = ImageList(
                [Path(file) for file, _ in found], np.array([label for _, label in found], np.int64)
            )
        check_lists(self.path, classes, lists)
        return tuple(classes), lists

    def _folders(self) -> list[str]:
        """What may be a split: the folders in PATH, and PATH itself where it is asked for."""
        if not Path(self.path).is_dir():
            found = "is no folder" if Path(self.path).exists() else "is not there"
            raise FieldError("path", f"{self.path} {found}; name the one that holds a folder for each split.")
        folders = sorted(entry.name for entry in Path(self.path).iterdir() if entry.is_dir())
        if not folders:
            raise FieldError("path", f"{self.path} holds no folders; name the one that holds a folder for each split.")
        return [*folders, *(["."] if self.splits and "." in self.splits.values() else [])]

    def _classes(self, split: str) -> list[str]:
        try:
            names: list[str] = find_classes(Path(self.path) / split)[0]
        except FileNotFoundError:
            raise FieldError("path", f"{Path(self.path) / split} holds no folders, one for each class.") from None
        return names
