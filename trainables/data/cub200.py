"""CUB-200-2011: 11,788 photographs of birds of 200 species, various sizes. Wah et al. 2011."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainables.data.shared.images import ImageFiles, ImageList, Size, check_lists, required
from trainables.fields import number
from trainables.files.data_files import lines_of
from trainables.problems import FieldError


@dataclass(frozen=True, kw_only=True)
class Cub200(ImageFiles):
    """`path` has images.txt and the other lists; train and test are as in train_test_split.txt."""

    size: Size = number(
        224, low=1, doc="side in pixels, or [height, width]: center crop and resize"
    )

    def lists(self) -> tuple[tuple[str, ...], dict[str, ImageList]]:
        species = self._list("classes.txt")
        images = self._images()
        numbers = {key: label for label, key in enumerate(sorted(species, key=int))}
        labels = self._values("image_class_labels.txt", images, numbers)
        in_train = self._values("train_test_split.txt", images, {"0": 0, "1": 1})
        lists = {}
        for split, wanted in (("train", 1), ("test", 0)):
            keys = [key for key in images if in_train[key] == wanted]
            lists[split] = ImageList(
                [images[key] for key in keys], np.array([labels[key] for key in keys], np.int64)
            )
        # `001.Black_footed_Albatross`
        classes = tuple(species[key].rpartition(".")[2] for key in numbers)
        check_lists(self.path, classes, lists)
        return classes, lists

    def _list(self, name: str) -> dict[str, str]:
        """The entries of a list file by number, e.g. `1 001.Black_footed_Albatross`."""
        rows = lines_of("path", required(self.path, name))
        parts = (row.partition(" ") for _, row in rows if row)
        return {key: value for key, _, value in parts}

    def _images(self) -> dict[str, Path]:
        folder = required(self.path, "images")
        images = {key: folder / name for key, name in self._list("images.txt").items()}
        for key, file in images.items():
            if not file.exists():
                raise FieldError(
                    "path",
                    f"image {key} in images.txt, {file}, is missing",
                    "Unpack the archive again.",
                )
        return images

    def _values(
        self, name: str, images: dict[str, Path], meanings: dict[str, int]
    ) -> dict[str, int]:
        """{image: the meaning of its entry in the list file}."""
        listed = self._list(name)
        for key in images:
            if listed.get(key) not in meanings:
                entry = f"an invalid entry {listed[key]!r}" if key in listed else "no entry"
                raise FieldError(
                    "path",
                    f"{self.path}: {name} has {entry} for image {key}",
                    "Unpack the archive again.",
                )
        return {key: meanings[listed[key]] for key in images}
