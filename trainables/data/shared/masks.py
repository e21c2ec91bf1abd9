"""Masks: PNG files whose values are the classes of an image's pixels.

A value is class + 1 once stored, and 0 where a pixel has no label.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from PIL import Image, ImageOps

from trainables.data.shared.images import Size, opened, sides
from trainables.data.shared.orientation import orientation_of, turned, upright_size
from trainables.files.data_files import lines_of
from trainables.kinds import count_of
from trainables.problems import FieldError

MOST_CLASSES = 254  # class + 1 is a byte
VALUES = 256
VOID = 255
VOID_DOC = "value, or list of values, of a mask's pixels without a label"
CLASSES_DOC = "names in the order of their numbers, or a text file with one on each line"
PNG = "Save masks as PNG, of one number for each pixel."
PALETTE = f"{PNG} Of a PNG with a palette the indices are read, not the colours."
CLASSES = "Give a list of names, or a text file with one on each line."

Void = int | list[int]
Classes = list[str] | str | None
Place = Callable[[str, int], str]  # of a split and an image in it: what a message calls its mask


class Legend(NamedTuple):
    """What the values of masks mean."""

    void: tuple[int, ...]  # no label
    names: tuple[str, ...] | None  # of the classes; None: they are numbered

    @classmethod
    def of(cls, void: Void, classes: Classes) -> "Legend":
        """From the options of a data set. Raises FieldError."""
        values = void if isinstance(void, list) else [void]
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < VALUES:
                raise FieldError("void", f"must be values of 0 to {VALUES - 1}, got {value!r}")
        names = None if classes is None else _names(classes)
        for value in values:
            if names is not None and value < len(names):
                found = f"{value} is the class '{names[value]}' of `classes`"
                raise FieldError("void", found, "Void is a value that is no class.")
        return cls(tuple(sorted(set(values))), names)

    @classmethod
    def check(cls, void: Void, classes: Classes) -> None:
        """Raise FieldError for options that cannot be. Reads no file."""
        cls.of(void, classes if isinstance(classes, list) else None)


def _names(classes: list[str] | str) -> tuple[str, ...]:
    if isinstance(classes, str):
        return _listed(Path(classes))
    for name in classes:
        if not isinstance(name, str) or not name.strip():
            raise FieldError("classes", f"has {name!r}, which is no name", CLASSES)
    return _checked(classes, "classes")


def _listed(file: Path) -> tuple[str, ...]:
    """The names in a text file, one on each line."""
    try:
        lines = [line for _, line in lines_of("classes", file)]
    except FieldError as error:
        raise FieldError("classes", error.found, CLASSES) from None
    while lines and not lines[-1]:
        lines.pop()
    if "" in lines:
        found = f"{file}, line {lines.index('') + 1}: the name is missing"
        raise FieldError("classes", found, CLASSES)
    return _checked(lines, str(file))


def _checked(names: Sequence[str], there: str) -> tuple[str, ...]:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise FieldError("classes", f"{there} has '{name}' twice", "Rename one.")
    if not 2 <= len(names) <= MOST_CLASSES:
        found = f"{there} has {count_of(len(names), 'names')}"
        raise FieldError("classes", f"{found}; there may be 2 to {MOST_CLASSES:,} classes")
    return tuple(names)


# ---- a mask --------------------------------------------------------------------------------------


def decode_mask(encoded: bytes, shape: tuple[int, int], size: Size = None) -> np.ndarray:
    """[H, W] uint8: the values of a mask, as they are in the file, turned by its EXIF orientation.

    shape: (height, width) of its image, upright. size: cut and resized as `decode` does with the
    image, but each value is that of the nearest pixel. Raises FieldError, and decoder errors.
    """
    image = opened(encoded)
    if image.format in ("JPEG", "MPO"):
        found = "the mask is a JPEG: compression changes its values, so they are no labels"
        raise FieldError("mask", found, PNG)
    if image.format != "PNG":
        raise FieldError("mask", f"the mask is a {image.format} file, not PNG", PNG)
    if image.mode.startswith("I"):
        raise FieldError("mask", "the mask has more than 8 bits for each pixel", PNG)
    if image.mode not in ("P", "L", "1"):
        found = f"the mask is of colours ({image.mode}), not of class numbers"
        raise FieldError("mask", found, PALETTE)
    orientation = orientation_of(encoded)
    own = upright_size(image, orientation)
    if own != shape:
        mask, its = (f"{width}x{height}" for height, width in (own, shape))
        said = f"the mask is {mask} pixels, its image {its}"
        raise FieldError("mask", said, "Give each image a mask of its own size.")
    values = np.asarray(turned(image, orientation)).astype(np.uint8)
    if image.mode == "L":
        # Pillow stretches grey of 2 or 4 bits to 255. This byte of a PNG says how many it has.
        values //= 255 // (2 ** encoded[24] - 1)
    if size is None or values.shape == sides(size):
        return values
    height, width = sides(size)
    nearest = Image.Resampling.NEAREST
    return np.asarray(ImageOps.fit(Image.fromarray(values), (width, height), nearest))


# ---- the masks of a source -----------------------------------------------------------------------


class _Present(NamedTuple):
    """Which values the masks of a split have."""

    images: np.ndarray  # [N, 256] bool: whether an image's mask has the value
    pixels: np.ndarray  # [256] that have it

    @classmethod
    def of(cls, masks: np.ndarray) -> "_Present":
        images = np.zeros((len(masks), VALUES), dtype=bool)
        pixels = np.zeros(VALUES, dtype=np.int64)
        for mask, there in zip(masks, images, strict=True):
            counts = np.bincount(mask.reshape(-1), minlength=VALUES)
            there[:] = counts > 0
            pixels += counts
        return cls(images, pixels)


def as_labels(masks: Mapping[str, np.ndarray], legend: Legend, place: Place) -> tuple[str, ...]:
    """The classes of masks, whose values become class + 1, and 0 for void, in place.

    masks: uint8 [N, H, W] of each split. Raises FieldError for a value that is neither class nor
    void, for a split without a label, and unless train, if it is among them, has each class.
    """
    found = {name: _Present.of(of_split) for name, of_split in masks.items()}
    void = list(legend.void)
    is_void = np.isin(np.arange(VALUES), void)
    for name, there in found.items():
        if not there.pixels[~is_void].any():
            shown = ", ".join(map(str, void))
            said = f"no pixel of the {name} masks has a label, all are void ({shown})"
            raise FieldError("mask", said, "Correct `void`.")
    names = legend.names or _numbers(found.get("train"), legend)
    is_class = np.arange(VALUES) < len(names)
    for name, there in found.items():
        wrong = np.flatnonzero((there.pixels > 0) & ~is_class & ~is_void)
        if len(wrong):
            _refuse_value(int(wrong[0]), there, masks[name], partial(place, name), names)
    if "train" in found:
        _check_train(found["train"], len(names), legend)
    table = np.zeros(VALUES, dtype=np.uint8)
    table[: len(names)] = np.arange(1, len(names) + 1)
    table[void] = 0
    for of_split in masks.values():
        for mask in of_split:
            mask[:] = table[mask]
    return names


def _numbers(train: _Present | None, legend: Legend) -> tuple[str, ...]:
    """The classes of masks that have no names: up to the largest value of train."""
    if train is None:
        return tuple(map(str, range(MOST_CLASSES)))
    labels = train.pixels.copy()
    labels[list(legend.void)] = 0
    largest = int(np.flatnonzero(labels)[-1])
    if largest >= MOST_CLASSES:
        found = f"the largest value of the train masks is {largest}"
        mend = f"Classes go from 0 to {MOST_CLASSES - 1}; name in `void` what is no class."
        raise FieldError("mask", found, mend)
    inside = [value for value in legend.void if value < largest]
    if inside:
        found = f"{inside[0]} is the number of a class, as the train masks have 0 to {largest}"
        raise FieldError("void", found, "Number the classes from 0, and void above them.")
    return tuple(map(str, range(largest + 1)))


def _refuse_value(
    value: int,
    there: _Present,
    masks: np.ndarray,
    place: Callable[[int], str],
    names: Sequence[str],
) -> NoReturn:
    with_it = np.flatnonzero(there.images[:, value])
    row, column = np.argwhere(masks[with_it[0]] == value)[0]
    count = count_of(int(there.pixels[value]), "pixels")
    found = f"{place(int(with_it[0]))}: the mask has {value} at row {row}, column {column}"
    more = f"neither a class (0 to {len(names) - 1}) nor void; {count} of"
    of = f"{more} {count_of(len(with_it), 'masks')} have it"
    raise FieldError("mask", f"{found}, {of}", "Correct the masks, `void` or `classes`.")


def _check_train(train: _Present, num_classes: int, legend: Legend) -> None:
    """Raise FieldError unless the masks of train have each class, and there are two."""
    absent = np.flatnonzero(train.pixels[:num_classes] == 0)
    if len(absent) and legend.names is not None:
        found = f"no mask of train has the class '{legend.names[absent[0]]}' ({absent[0]})"
        mend = "Add one, raise `limit` if there is one, or leave the class out of `classes`."
        raise FieldError("mask", found, mend)
    if len(absent):
        found = f"no mask of train has the class {absent[0]}, but the largest is {num_classes - 1}"
        raise FieldError("mask", found, "Number the classes from 0 without gaps.")
    if num_classes == 1:
        found = "all labelled pixels of train are of class 0; at least two classes are needed"
        mend = ""
        if 255 in legend.void and train.pixels[255]:
            mend = "255 is void: where masks of 0 and 255 have two classes, write 0 and 1."
        raise FieldError("mask", found, mend)
