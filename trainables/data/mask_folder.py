"""Images and masks in two folders, a class for every pixel: images/NAME.jpg and masks/NAME.png."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NoReturn

from torchvision.datasets.folder import IMG_EXTENSIONS

from trainables.data.shared.groups import groups_of_files
from trainables.data.shared.left_out import left_out
from trainables.data.shared.mask_files import MaskFiles, MaskList
from trainables.data.shared.masks import CLASSES_DOC, VOID, VOID_DOC, Legend, Void
from trainables.data.shared.splits import KNOWN_NAMES, check_splits, split_names
from trainables.fields import path_text, setting
from trainables.files.data_files import digest_of, lines_of
from trainables.kinds import count_of
from trainables.problems import FieldError, nearest

IMAGES = "images"
MASKS = "masks"
NAMES = "classes.txt"


@dataclass(frozen=True, kw_only=True)
class MaskFolder(MaskFiles):
    """PATH/images and PATH/masks; an image and its mask have one name, up to its ending.

    PATH/train.txt, validation.txt (valid, val, dev) and test.txt list the images of each split, a
    name on each line; with only train and validation, the latter becomes the sealed test split.
    `splits` names other files. Without such files, all images are train.
    """

    splits: dict[str, str] | None = setting(
        None, doc="file of each split's names, below PATH, e.g. {train: fit.txt, test: held.txt}"
    )
    void: Void = setting(VOID, doc=VOID_DOC)
    classes: str | list[str] | None = path_text(
        None, doc=f"{CLASSES_DOC}; null: PATH/{NAMES}, if it is there"
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
        Legend.check(self.void, self.classes)

    @property
    def unit(self) -> str | None:
        return None if self.group is None else "groups"

    @property
    def legend(self) -> Legend:
        beside = Path(self.path) / NAMES
        classes = str(beside) if self.classes is None and beside.exists() else self.classes
        return Legend.of(self.void, classes)

    def _digests(self) -> tuple[str, list[str]]:
        found, orientations = super()._digests()
        if self.group is not None:
            both = f"{found} {digest_of('group', Path(self.group))}"
            found = hashlib.sha256(both.encode()).hexdigest()
        return found, orientations

    def lists(self) -> dict[str, MaskList]:
        images = self._files(IMAGES)
        masks = self._files(MASKS)
        self._check_pairs(images, masks)
        lists = {}
        for split, names in self._names(images).items():
            lists[split] = MaskList([images[n] for n in names], [masks[n] for n in names])
        return lists if self.group is None else self._grouped(lists)

    def left_out(self) -> Mapping[str, int]:
        return left_out(Path(self.path) / folder for folder in (IMAGES, MASKS))

    def notes(self) -> tuple[str, ...]:
        images = self._files(IMAGES)
        unlisted = len(images) - sum(map(len, self._names(images).values()))
        if not unlisted:
            return ()
        return (f"{count_of(unlisted, 'images')} of {self.path} are in no list of a split",)

    def _files(self, folder: str) -> dict[str, Path]:
        """The files in a folder of PATH, by their names up to the ending, in order."""
        root = Path(self.path)
        where = root / folder
        if not where.is_dir():
            mend = "Give the folder that has both, images/ and masks/."
            if near := sorted(root.glob(f"*/{folder}")):
                mend = f"Did you mean {near[0].parent}?"
            raise FieldError("path", f"there is no folder {where}", mend)
        found: dict[str, Path] = {}
        for file in sorted(where.iterdir()):
            if file.is_dir():
                mend = "Move its files up: train.txt next to images/ names those of train."
                raise FieldError("path", f"{file} is a folder", mend)
            if file.name.startswith(".") or file.suffix.lower() not in IMG_EXTENSIONS:
                continue
            if file.stem in found:
                said = f"{found[file.stem]} and {file.name} have one name"
                raise FieldError("path", said, "Rename or remove one.")
            found[file.stem] = file
        return found

    def _check_pairs(self, images: Mapping[str, Path], masks: Mapping[str, Path]) -> None:
        if not images:
            raise FieldError("path", f"{self.path}/{IMAGES} has no images")
        for ours, others, noun, other in (
            (images, masks, "image", "mask"),
            (masks, images, "mask", "image"),
        ):
            alone = [name for name in ours if name not in others]
            if alone:
                count = count_of(len(alone), f"{noun}s")
                have = "has" if len(alone) == 1 else "have"
                found = f"{count} of {self.path} {have} no {other}, e.g. {ours[alone[0]].name}"
                mend = f"{MASKS}/NAME.png is the mask of {IMAGES}/NAME.jpg: add it, or remove one."
                raise FieldError("path", found, mend)

    # ---- splits ----------------------------------------------------------------------------------

    def _names(self, images: Mapping[str, Path]) -> dict[str, list[str]]:
        """The images of each split."""
        lists = self._lists()
        if not lists:
            return {"train": list(images)}
        found = {split: _listed(file, images) for split, file in lists.items()}
        place: dict[str, Path] = {}
        for split, names in found.items():
            for name in names:
                if name in place:
                    said = f"{lists[split]} has '{name}', which {place[name]} has too"
                    raise FieldError("splits", said, "An image is of one split: remove one.")
                place[name] = lists[split]
        return found

    def _lists(self) -> dict[str, Path]:
        """The file of each split's names; none where all images are train."""
        there = {file.stem: file for file in sorted(Path(self.path).glob("*.txt"))}
        if self.splits is None:
            known = set(chain.from_iterable(KNOWN_NAMES.values()))
            lists = [name for name in there if name.lower() in known]
            names = split_names(None, lists, self.path) if lists else {}
            return {ours: there[theirs] for ours, theirs in names.items()}
        found = {ours: Path(self.path) / theirs for ours, theirs in self.splits.items()}
        for file in found.values():
            if not file.exists():
                near = nearest(file.name, [one.name for one in there.values()]) if there else ""
                raise FieldError("splits", f"there is no file {file}", near)
        return found

    def _grouped(self, lists: dict[str, MaskList]) -> dict[str, MaskList]:
        """The lists with the group of each image."""
        assert self.group is not None
        files = chain.from_iterable(listed.images for listed in lists.values())
        groups = groups_of_files(self.group, self.path, [f"{IMAGES}/{file.name}" for file in files])
        ends = [len(listed.images) for listed in lists.values()]
        grouped = {}
        for (name, listed), size in zip(lists.items(), ends, strict=True):
            grouped[name] = listed._replace(groups=groups[:size])
            groups = groups[size:]
        return grouped


def _listed(file: Path, images: Mapping[str, Path]) -> list[str]:
    """The names in a list; each is that of a file, with its ending or without."""
    lines = [line for _, line in lines_of("splits", file)]
    known = {path.name: name for name, path in images.items()} | {name: name for name in images}
    unknown = [line for line in lines if line and line not in known]
    if unknown:
        _refuse(file, f"{count_of(len(unknown), 'names')} without an image, e.g. '{unknown[0]}'")
    names = [known[line] for line in lines if line]
    if not names:
        _refuse(file, "no names", "Write the name of an image on each line.")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        _refuse(file, f"'{twice[0]}' more than once", "Remove one.")
    return names


def _refuse(file: Path, found: str, mend: str = "") -> NoReturn:
    raise FieldError("splits", f"{file} has {found}", mend)
