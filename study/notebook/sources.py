"""The objects that may be data: arrays with labels, and data sets that are read item by item."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from study.notebook.frames import check_order, is_frame, names_of, numbers_of, without_labels
from study.notebook.named import Columns, class_names, columns_of, kind_of_value, kinds_of
from study.notebook.samples import array_of, as_rows, kind_of, label_of, labels_of
from trainables.inputs import DTYPES
from trainables.kinds import Kind
from trainables.plugins import in_a_line
from trainables.problems import FieldError

MANY = 1024  # samples of an array at a time
TWICE = 100  # items that are read twice
FORMS = "a pair (samples, labels), or a map-style data set of (sample, label)"


class Shape(NamedTuple):
    """What all samples are."""

    kind: Kind
    size: tuple[int, ...]  # of one sample

    @property
    def dtype(self) -> str:
        return DTYPES[self.kind].str

    @property
    def shown(self) -> str:
        if self.kind == "features":
            return f"a row of {self.size[0]:,} numbers"
        channels, height, width = self.size
        return f"{width}x{height} pixels in {channels} channel{'s' * (channels != 1)}"


class Coloured(Exception):
    """An image has three channels where those before it had one."""


class Source(Protocol):
    """The samples of a split."""

    columns: tuple[str, ...]  # of rows, if they have names
    classes: tuple[str, ...]  # if the object names them

    def __len__(self) -> int: ...

    def shape(self) -> Shape:
        """That of its first sample."""

    def check(self) -> None:
        """Raise FieldError where the same sample is not the same twice."""

    def parts(self, shape: Shape) -> Iterator[np.ndarray]:
        """Its samples, several at a time. Raises FieldError, or Coloured, for others than that."""

    def labels(self) -> np.ndarray:
        """[N] int64, or words, once all parts were asked for."""


def source_of(found: Any, columns: Columns) -> Source:
    """The samples of an object. Raises FieldError."""
    if isinstance(found, type):
        mend = f"Give an instance: {found.__name__}(...)."
        raise FieldError("", f"is the class {found.__name__}", mend)
    if isinstance(found, tuple | list) and len(found) == 2 and _is_array(found[0]):
        return InMemory(*found)
    if is_frame(found):
        return InMemory(*without_labels(found, columns.label))
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list):
        return OneByOne(_paired(*found), columns, ())
    if isinstance(found, tuple):
        raise FieldError("", f"is a tuple of {len(found)}", f"Give {FORMS}.")
    if _is_array(found):
        raise FieldError("", f"is of type {type(found).__name__}, without labels", f"Give {FORMS}.")
    _refuse_stream(found)
    if hasattr(found, "features") and hasattr(found, "column_names"):
        named = columns_of(kinds_of(found), columns)
        return OneByOne(found, named, class_names(found, named))
    return OneByOne(found, columns, _classes(found))


def _paired(samples: list[Any], labels: Any) -> list[tuple[Any, Any]]:
    of_all = labels_of(labels)
    _refuse_others(len(samples), len(of_all))
    return list(zip(samples, of_all, strict=True))


def _refuse_others(samples: int, labels: int) -> None:
    if samples != labels:
        found = f"{samples:,} samples with {labels:,} labels"
        raise FieldError("", found, "Give each sample one.")


def _is_array(found: Any) -> bool:
    return hasattr(found, "shape") and not hasattr(found, "column_names")


def _refuse_stream(found: Any) -> None:
    """Raise FieldError for what cannot be asked for its i-th item."""
    kind = type(found).__name__
    parents = {parent.__name__ for parent in type(found).__mro__}
    if "DataLoader" in parents:
        raise FieldError(
            "", f"is of type {kind}, which draws batches", "Give its data set: loader.dataset."
        )
    if isinstance(found, Mapping) and {"data", "target"} <= found.keys():  # scikit-learn's
        raise FieldError("", f"is of type {kind}", "Give a pair: (bunch.data, bunch.target).")
    if "IterableDataset" in parents and hasattr(found, "features"):  # Hugging Face's
        what = f"is of type {kind}, which has no i-th sample"
        raise FieldError("", what, "Load it without streaming=True.")
    is_map = hasattr(found, "__getitem__") and hasattr(found, "__len__")
    if isinstance(found, str | bytes | Mapping) or not is_map or "IterableDataset" in parents:
        mend = f"Give {FORMS}: with __len__ and __getitem__."
        raise FieldError("", f"is of type {kind}, which has no i-th sample", mend)


# ---- arrays --------------------------------------------------------------------------------------


class InMemory:
    """An array of samples, and one of labels."""

    def __init__(self, samples: Any, labels: Any) -> None:
        self.classes: tuple[str, ...] = ()
        self.columns = names_of(samples) if is_frame(samples) else ()
        self._samples = numbers_of(samples) if is_frame(samples) else array_of(samples)
        self._labels = labels_of(labels)
        self._kind = kind_of(self._samples, several=True)
        _refuse_others(len(self._samples), len(self._labels))
        check_order(samples, labels, "labels")

    def __len__(self) -> int:
        return len(self._samples)

    def shape(self) -> Shape:
        return Shape(self._kind, self._samples.shape[1:])

    def check(self) -> None:
        """An array is what it is."""

    def parts(self, shape: Shape) -> Iterator[np.ndarray]:
        for start in range(0, len(self._samples), MANY):
            found = self._samples[start : start + MANY]
            if shape.kind == "features" and self._kind == "features":
                found = as_rows(found, start, self.columns)
            yield fitted(found, shape, "each sample is")

    def labels(self) -> np.ndarray:
        return self._labels


def fitted(found: np.ndarray, shape: Shape, place: str) -> np.ndarray:
    """Samples [n, ...] of the shape; grayscale becomes colour. Raises Coloured, FieldError.

    place: what to say of them.
    """
    if found.shape[1:] == shape.size:
        return found
    is_image = found.ndim == 4 and shape.kind == "image"
    if is_image and found.shape[2:] == shape.size[1:]:
        channels = (found.shape[1], shape.size[0])
        if channels == (1, 3):
            return np.broadcast_to(found, (len(found), *shape.size))
        if channels == (3, 1):
            raise Coloured
    kind: Kind = "image" if found.ndim == 4 else "features"
    mend = "Give all splits samples of one kind."
    if kind == shape.kind == "features":
        mend = "All rows have one length."
    if is_image:
        side = f"({shape.size[1]}, {shape.size[2]})"
        mend = f"Resize in the data set's transform: torchvision's transforms.Resize({side})."
    said = f"{place} {Shape(kind, found.shape[1:]).shown}"
    raise FieldError("", f"{said}, item 0 of train is {shape.shown}", mend)


# ---- item by item --------------------------------------------------------------------------------


class OneByOne:
    """A map-style data set: of torch, torchvision or Hugging Face, or a list."""

    def __init__(self, items: Any, named: Columns, classes: Sequence[str]) -> None:
        self.columns: tuple[str, ...] = ()
        self._items = items
        self._named = named
        self.classes = tuple(classes)
        self._size = len(items)
        self._labels: list[int | str] = []

    def __len__(self) -> int:
        return self._size

    def shape(self) -> Shape:
        sample, _ = self._at(0)
        return Shape("image" if sample.ndim == 3 else "features", sample.shape)

    def check(self) -> None:
        for place in np.unique(np.linspace(0, self._size - 1, TWICE).astype(int)).tolist():
            first, label = self._at(place)
            again, label_again = self._at(place)
            if label != label_again or not np.array_equal(first, again):
                what = f"item {place} is not the same when it is read again"
                mend = (
                    "Take random transforms out: calstudy augments with `augment`, such as"
                    " crop_flip."
                )
                raise FieldError("", what, mend)

    def parts(self, shape: Shape) -> Iterator[np.ndarray]:
        self._labels = []
        for place in range(self._size):
            sample, label = self._at(place)
            self._labels.append(label)
            yield fitted(sample[None], shape, f"item {place} is")

    def labels(self) -> np.ndarray:
        kinds = {type(label) for label in self._labels}
        if len(kinds) > 1:
            raise FieldError("", "some labels are words, others numbers", "Give one kind.")
        return labels_of(np.array(self._labels))

    def _at(self, place: int) -> tuple[np.ndarray, int | str]:
        """A sample, uint8 [C, H, W] or float32 [D], and its label."""
        try:
            item = self._items[place]
        except Exception as error:  # whatever the user's code raises
            found = f"item {place} cannot be read ({in_a_line(error)}{_line_of(error)})"
            raise FieldError("", found, "Mend the data set.") from error
        try:
            given, label = self._pair(item)
            sample = array_of(given)
            if kind_of(sample, several=False) == "features":
                sample = as_rows(sample[None], place)[0]
            return sample, label_of(label)
        except FieldError as error:
            raise FieldError("", f"item {place}: {error.found}", error.mend) from None

    def _pair(self, item: Any) -> tuple[Any, Any]:
        if isinstance(item, Mapping):
            columns = columns_of({name: kind_of_value(item[name]) for name in item}, self._named)
            return item[columns.image], item[columns.label]
        if isinstance(item, tuple | list) and len(item) == 2:
            return item[0], item[1]
        kind = type(item).__name__
        what = f"{kind} of {len(item)}" if isinstance(item, tuple | list) else kind
        raise FieldError("", f"is a {what}", "Give (sample, label).")


def _line_of(error: Exception) -> str:
    """`, photos.py:12`: where the user's code failed, or called what failed."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is ours
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return f", {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def _classes(dataset: Any) -> Sequence[str]:
    """The names in `classes` of torchvision, also of a torch Subset."""
    while dataset is not None:
        found = getattr(dataset, "classes", None)
        if isinstance(found, list | tuple) and all(isinstance(name, str) for name in found):
            return tuple(found)
        dataset = getattr(dataset, "dataset", None)
    return ()
