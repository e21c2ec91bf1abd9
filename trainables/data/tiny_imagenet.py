"""Tiny-ImageNet: 200 classes of 64x64 photographs, 500 + 50 images each (Stanford CS231n)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainables.data.shared.images import ImageFiles, ImageList, check_lists, required
from trainables.files.data_files import lines_of
from trainables.problems import FieldError, nearest

ANNOTATIONS = "val/val_annotations.txt"


@dataclass(frozen=True, kw_only=True)
class TinyImagenet(ImageFiles):
    """`path` is the unpacked archive, with wnids.txt, train and val.

    Its test images have no labels: as in the papers, its validation images are the sealed test
    split, and validation is carved from train.
    """

    def lists(self) -> tuple[tuple[str, ...], dict[str, ImageList]]:
        wnids = sorted(
            wnid for _, wnid in lines_of("path", required(self.path, "wnids.txt")) if wnid
        )
        labels = {wnid: label for label, wnid in enumerate(wnids)}
        lists = {"train": self._train(labels), "test": self._validation(labels)}
        check_lists(self.path, wnids, lists)
        return self._class_names(wnids), lists

    def _train(self, labels: dict[str, int]) -> ImageList:
        files: list[Path] = []
        numbers: list[int] = []
        for wnid, label in labels.items():
            found = sorted(required(self.path, f"train/{wnid}/images").glob("*.JPEG"))
            files += found
            numbers += [label] * len(found)
        return ImageList(files, np.array(numbers, dtype=np.int64))

    def _validation(self, labels: dict[str, int]) -> ImageList:
        annotations = required(self.path, ANNOTATIONS)
        files = []
        numbers = []
        for line, row in lines_of("path", annotations):
            # The image, its class, and a box around the object.
            name, _, rest = row.partition("\t")
            wnid = rest.partition("\t")[0]
            if wnid not in labels:
                found = f"{annotations}, line {line}: wnids.txt has no class '{wnid}'"
                raise FieldError("path", found, nearest(wnid, list(labels)[:1000]))
            file = annotations.parent / "images" / name
            if not file.exists():
                raise FieldError(
                    "path",
                    f"{annotations}, line {line}: {file} is missing",
                    "Unpack the archive again.",
                )
            files.append(file)
            numbers.append(labels[wnid])
        return ImageList(files, np.array(numbers, dtype=np.int64))

    def _class_names(self, wnids: list[str]) -> tuple[str, ...]:
        """Names from words.txt: `goldfish, Carassius auratus`; without it, WordNet ids."""
        words = Path(self.path) / "words.txt"
        if not words.exists():
            return tuple(wnids)
        rows = (row.partition("\t") for _, row in lines_of("path", words))
        named = {wnid: name for wnid, _, name in rows}
        return tuple(named.get(wnid, wnid) for wnid in wnids)
