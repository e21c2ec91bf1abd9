"""Samples and labels of a user's objects, as calstudy keeps them: uint8 [C, H, W], float32 [D]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from trainables.data.shared.groups import numbered as numbered_texts
from trainables.data.shared.images import pixels_of
from trainables.kinds import Kind
from trainables.problems import FieldError

NUMBERS = "biuf"  # NumPy's kinds of types
WHOLE = "biu"
CHANNELS = (1, 3, 4)  # of an image whose channels may be last
AS_READ = "Leave out ToTensor and Normalize: give PIL images or uint8; calstudy normalises."
AS_PIXELS = "Give the pixels as uint8, 0 to 255; calstudy normalises."
FILL = "Fill it, or leave out the row or the column."
NO_LABEL = "Labels start at 0; leave out samples without a label."


def array_of(value: Any) -> np.ndarray:
    """A NumPy array of what NumPy, torch or pandas hold. Raises FieldError."""
    if isinstance(value, Image.Image):
        try:
            return pixels_of(value).transpose(2, 0, 1)
        except FieldError as error:
            raise FieldError("", error.found, "Convert it to L or RGB.") from None
    if hasattr(value, "toarray"):  # of SciPy, sparse
        raise FieldError("", f"is a sparse {type(value).__name__}", "Give its toarray().")
    if hasattr(value, "detach"):  # of torch, maybe on a GPU
        value = value.detach().cpu()
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    try:
        return np.asarray(value)
    except Exception:  # torch has types that NumPy lacks; lists may be ragged
        kind = getattr(value, "dtype", type(value).__name__)
        raise FieldError("", f"{kind} is no array of numbers", "Give uint8 or float32.") from None


def kind_of(array: np.ndarray, several: bool) -> Kind:
    """What samples are: images, or rows of numbers. several: the array holds N of them.

    Raises FieldError if they are neither.
    """
    shape = array.shape[1:] if several else array.shape
    shown = f"{array.dtype} {list(array.shape)}"
    if array.dtype.kind not in NUMBERS or not shape or 0 in shape:
        raise FieldError("", f"samples are {shown}, neither images nor rows of numbers", _wanted())
    if len(shape) == 1:
        return "features"
    if len(shape) > 3:
        raise FieldError("", f"samples are {shown}, neither images nor rows of numbers", _wanted())
    if array.dtype.kind == "f":
        raise FieldError("", f"images are {shown}, not uint8", AS_PIXELS if several else AS_READ)
    if array.dtype != np.uint8:
        raise FieldError("", f"images are {shown}, not uint8", AS_PIXELS)
    if len(shape) == 2:
        mend = (
            "Write images[:, None]."
            if several
            else "Give [1, H, W]: image[None]. Of Hugging Face, give with_format(None)."
        )
        raise FieldError("", f"images are {shown}, without channels", mend)
    if shape[0] not in CHANNELS and shape[2] in CHANNELS:
        axes = "(0, 3, 1, 2)" if several else "(2, 0, 1)"
        mend = f"Put them first: NumPy's images.transpose{axes}, or torch's permute{axes}."
        if not several:
            mend = f"{mend} Of Hugging Face, give with_format(None)."
        raise FieldError("", f"images are {shown}: their channels are last", mend)
    return "image"


def _wanted() -> str:
    return "Give images, uint8 [N, C, H, W] or PIL, or rows of numbers, float32 [N, D]."


def as_rows(values: np.ndarray, first: int, columns: Sequence[str] = ()) -> np.ndarray:
    """float32 [n, D] of numbers [n, D]. first: the place of the first row, for messages.

    Raises FieldError for a value that is no finite float32.
    """
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    if np.isfinite(found).all():
        return found
    row, place = np.argwhere(~np.isfinite(found))[0]
    value = values[row, place]
    what = "NaN" if np.isnan(value) else "an infinite value"
    mend = FILL
    if np.isfinite(value):
        what = f"{value:g} is beyond float32"
        mend = "Divide the column by a power of ten."
    column = f"'{columns[place]}'" if columns else place
    raise FieldError("", f"row {first + row}, column {column}: {what}", mend)


# ---- labels --------------------------------------------------------------------------------------


def label_of(value: Any) -> int | str:
    """The label of one sample, a number or a word. Raises FieldError."""
    found = array_of(value)
    if found.ndim:
        mend = "Give one whole number for each sample."
        raise FieldError("", f"the label is {found.dtype} {list(found.shape)}", mend)
    try:
        label: int | str = labels_of(found[None]).tolist()[0]
    except FieldError as error:  # the caller says which item
        raise FieldError("", error.found.removeprefix("item 0: "), error.mend) from None
    return label


def labels_of(value: Any) -> np.ndarray:
    """[N] int64, or words: NumPy's text. Raises FieldError."""
    found = array_of(value)
    if found.ndim != 1:
        mend = "Give one whole number for each sample: [N]."
        if found.shape[1:] == (1,):
            mend = f"Take the column: labels{'.iloc' if hasattr(value, 'iloc') else ''}[:, 0]."
        raise FieldError("", f"labels are {found.dtype} {list(found.shape)}", mend)
    if found.dtype.kind == "f":
        other = np.flatnonzero(~(np.isfinite(found) & (found == np.round(found))))
        if len(other):
            what = f"item {other[0]}: the label is {found[other[0]]:g}, no whole number"
            raise FieldError("", what, "Number the classes from 0.")
    if found.dtype.kind in f"{WHOLE}f":
        return found.astype(np.int64)
    items = found.tolist()
    are_words = not items or isinstance(items[0], str)
    for place, label in enumerate(items):
        if not isinstance(label, str if are_words else int | float):
            what = f"item {place}: the label is a {type(label).__name__}, {label!r:.40}"
            raise FieldError("", what, "Labels are whole numbers from 0, or words.")
    return found.astype(str) if are_words else labels_of(np.array(items))


def numbered(
    labels: Mapping[str, np.ndarray], given: Sequence[str] | None, named: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """The classes, and the labels of each split in [0, K).

    labels: by split, of `labels_of`; words are numbered in sorted order. given: the classes as the
    user names them; named: as the objects do. Raises FieldError.
    """
    train = labels["train"]
    if train.dtype.kind == "U":
        names = list(given or sorted(set(train.tolist())))
        found = {split: _places(split, words, names) for split, words in labels.items()}
    else:
        found = {split: _from_zero(split, one) for split, one in labels.items()}
        count = len(given) if given is not None else int(train.max()) + 1
        names = list(given or named[:count])
        if len(set(names)) < count:
            names = [str(number) for number in range(count)]
    if len(names) < 2:
        what = f"all samples are of one class, '{names[0]}'"
        raise FieldError("train", what, "At least two classes are needed.")
    return tuple(names), _checked(found, names)


def _from_zero(split: str, labels: np.ndarray) -> np.ndarray:
    if labels.dtype.kind == "U":
        raise FieldError(split, "its labels are words, those of train numbers", "Give numbers.")
    other = np.flatnonzero(labels < 0)
    if len(other):
        raise FieldError(split, f"item {other[0]}: the label is {labels[other[0]]}", NO_LABEL)
    return labels


def _places(split: str, words: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    if words.dtype.kind != "U":
        raise FieldError(split, "its labels are numbers, those of train words", "Give words.")
    place_of = {word: place for place, word in enumerate(classes)}
    found = np.array([place_of.get(word, -1) for word in words.tolist()], dtype=np.int64)
    other = np.flatnonzero(found < 0)
    if len(other):
        there = ", ".join(classes[:10])
        what = f"item {other[0]}: the label is '{words[other[0]]}', the classes are {there}"
        raise FieldError(split, what, "Leave the sample out, or name its class.")
    return found


def _checked(labels: dict[str, np.ndarray], classes: Sequence[str]) -> dict[str, np.ndarray]:
    """The labels. Raises FieldError unless they are classes, and train has each."""
    count = len(classes)
    for split, found in labels.items():
        other = np.flatnonzero(found >= count)
        if len(other):
            what = f"item {other[0]}: the label is {found[other[0]]}"
            mend = "Leave the sample out, or name its class."
            raise FieldError(split, f"{what}, the classes are 0 to {count - 1}", mend)
    there = np.bincount(labels["train"], minlength=count)
    if not there.all():
        lacking = int(there.argmin())
        what = f"no sample has label {lacking} ('{classes[lacking]}')"
        raise FieldError("train", what, "Number the classes from 0 without gaps.")
    return labels


# ---- groups --------------------------------------------------------------------------------------


def numbered_groups(
    given: Any, sizes: Mapping[str, int]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """int64 [N] of each split, the same number for the same group, and the names of the numbers.

    given: [N] whole numbers or text, by split or of train alone; None: there are none. sizes: of
    the splits. Raises FieldError.
    """
    if given is None:
        return {}, {}
    of_split = given if isinstance(given, Mapping) else {"train": given}
    found = {}
    for name, size in sizes.items():
        if name not in of_split:
            mend = f"Give all splits some: {{{', '.join(f'{one!r}: [N]' for one in sizes)}}}."
            raise FieldError("", f"{name} has none", mend)
        found[name] = _groups_of(name, of_split[name], size)
    if len({groups.dtype.kind for groups in found.values()}) > 1:
        raise FieldError("", "some splits have numbers, others text", "Give one kind.")
    for name in of_split.keys() - sizes.keys():
        raise FieldError(str(name), "there is no such split", "Leave it out.")
    whole = np.concatenate(list(found.values()))
    if (whole == whole[0]).all():
        raise FieldError(
            "", f"all samples are of one group, '{whole[0]}'", "Give several, or none."
        )
    try:
        numbers, names = numbered_texts("text", [pa.array(whole)])
    except FieldError as error:
        raise error.at("") from None
    ends = np.cumsum(list(sizes.values()))
    parts = dict(zip(sizes, np.split(numbers, ends[:-1]), strict=True))
    return parts, {str(number): name for number, name in names.items()}


def _groups_of(split: str, given: Any, size: int) -> np.ndarray:
    """[N] of one split, numbers or text."""
    found = array_of(given)
    if found.shape != (size,):
        what = f"are {found.dtype} {list(found.shape)}, the split has {size:,} samples"
        raise FieldError(split, what, "Give each sample one.")
    if found.dtype.kind in "iu":
        return found.astype(np.int64)
    for place, word in enumerate(found.tolist()):
        if not isinstance(word, str) or not word.strip():
            what = f"item {place}: the group is {word!r:.40}"
            raise FieldError(split, what, "Give whole numbers or text.")
    return found.astype(str)
