"""The interface of a data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from trainables.fields import Settings, choice, number
from trainables.kinds import NOUNS, Kind
from trainables.plain import Value
from trainables.plugins import name_of
from trainables.problems import FieldError

Rows = dict[str, np.ndarray]  # row numbers of source files, by what identifies a file
Progress = Callable[[int, int], None]  # samples decoded, of how many


def nothing(done: int, total: int) -> None:
    """Progress that nobody follows."""


class RawSplit(NamedTuple):
    """images: uint8 [N, C, H, W], rows of numbers: float32 [N, D], or texts: int32 [N, L], numbers
    of `RawData.words`. labels: [N] int64, in [0, K). groups: [N] int64, a number for samples that
    belong together, the same in all splits.

    Of trees: int32 [N, M, 5], a row for each node as `Inputs` has it, the last number its label
    + 1, 0 where it has none. `labels` are those of the roots.

    Of images with masks (`marked`): uint8 [N, C + 1, H, W], the last channel each pixel's class
    + 1, 0 where it has none. Their labels are 0 and unused.
    """

    images: np.ndarray
    labels: np.ndarray
    groups: np.ndarray | None = None


class Words(NamedTuple):
    """The words of a source. In its samples 0 pads, 1 stands for a text without a word, and n >= 2
    is all[n - 2].

    The vocabulary is made of the words of train, once that is split off: the most frequent ones.
    """

    all: tuple[str, ...]  # each once
    most: int  # of the vocabulary
    vectors: Path | None = None  # a file with vectors of words, as GloVe has
    cut: int = 0  # texts that are longer than their sample


class Samples(NamedTuple):
    """Samples for evaluating models trained on other data."""

    images: np.ndarray  # uint8 [N, C, H, W], float32 [N, D], int32 [N, L] or [N, M, 5]
    labels: np.ndarray  # int64 [N]; -1: none
    names: dict[int, str]  # of the labels, if the source has them
    columns: tuple[str, ...] = ()  # of rows of numbers, if they have names
    groups: np.ndarray | None = None  # int64 [N]
    group_names: Mapping[int, str] = {}  # of their numbers, where they are not the numbers
    marked: bool = False  # with masks, as in `RawSplit`
    words: tuple[str, ...] = ()  # of the source, as in `Words.all`


class Header(NamedTuple):
    """Facts about samples before they are decoded; None: not known before."""

    rows: Rows
    # (C, H, W); C is 1 if the first image is grayscale. (D,) of rows of numbers.
    shape: tuple[int, ...] | None = None
    labels: np.ndarray | None = None  # int64, of all samples or one of each class
    names: dict[int, str] | None = None  # of the labels; empty if the source has none
    columns: tuple[str, ...] = ()  # of rows of numbers, if they have names
    marked: bool = False  # with masks, which are no channel of `shape`
    kind: Kind | None = None  # of samples of this shape; None: told by its length


@dataclass(frozen=True)
class RawData:
    """A data set as in its source; a split that is None is carved by seed."""

    classes: tuple[str, ...]  # K names, in label order
    train: RawSplit
    validation: RawSplit | None = None
    test: RawSplit | None = None
    columns: tuple[str, ...] = ()  # of rows of numbers, in their order, if they have names
    notes: tuple[str, ...] = ()  # what `plan` warns of
    group_names: Mapping[int, str] = field(default_factory=dict)  # where not the numbers
    marked: bool = False  # images with masks, as in `RawSplit`
    words: Words | None = None  # of which samples are numbers

    @classmethod
    def of(cls, classes: tuple[str, ...], splits: Mapping[str, RawSplit]) -> RawData:
        """Its splits by name."""
        return cls(classes, splits["train"], splits.get("validation"), splits.get("test"))


@dataclass(frozen=True)
class Dataset(Settings, ABC):
    """Options of every data set; subclasses add their own as fields."""

    noun: ClassVar[str] = NOUNS["image"]  # what its samples are called while they are read

    validation: float = number(
        0.2, above=0, below=1, doc="fraction of train, if the source has no validation split"
    )
    meta: float = number(
        0.1, above=0, below=1, doc="fraction of the remaining train split, for methods that need it"
    )
    augment: str = choice(
        *("none", "flip", "crop", "crop_flip", "alternating_flip", "crop_alternating_flip"),
        doc=(
            "random augmentation of training batches; alternating: flipped at random in the first"
            " epoch, then by turns"
        ),
    )
    padding: int | None = number(
        None,
        low=1,
        doc="zeros on each side before a crop, in pixels; null: an eighth of the height",
    )

    def __init_subclass__(cls, **options: Any) -> None:
        """A class that reads its samples in its own way inherits no description of them."""
        super().__init_subclass__(**options)
        if {"read", "samples"} & vars(cls).keys():
            for name in {"source_rows", "samples_header"} - vars(cls).keys():
                setattr(cls, name, getattr(Dataset, name))

    @abstractmethod
    def source_digest(self) -> str:
        """sha256 of the source and of the options that select from it. Decodes nothing.

        Raises FieldError if the source does not exist.
        """

    def unturned_digest(self) -> str:
        """`source_digest` as it was when no image was turned by its EXIF orientation."""
        return self.source_digest()

    @abstractmethod
    def read(self) -> RawData:
        """Decode the whole source. Raises FieldError if it cannot be used.

        One that takes long may take `progress: Progress = nothing`, by that name, and call it now
        and then.
        """

    def samples(self, where: dict[str, Value] | None = None) -> Samples:
        """The test split if there is one, else all. where: column values, for a table."""
        self._refuse_where(where)
        raw = self.read()
        parts = [raw.test or raw.train]
        if raw.test is None and raw.validation is not None:
            parts.append(raw.validation)
        images = np.concatenate([part.images for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        found = [part.groups for part in parts if part.groups is not None]
        groups = np.concatenate(found) if found else None
        names = dict(enumerate(raw.classes))
        words = () if raw.words is None else raw.words.all
        named = (names, raw.columns, groups, raw.group_names)
        return Samples(images, labels, *named, raw.marked, words)

    def source_rows(self) -> Rows:
        """The rows of the source that `read` uses; by default a single one. Decodes nothing."""
        return {f"{name_of(type(self))} {self.source_digest()}": np.zeros(1, dtype=np.int64)}

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        """Facts about `samples(where)`. Decodes nothing. Raises FieldError without the source."""
        if type(self).samples is Dataset.samples:
            self._refuse_where(where)
        return Header(self.source_rows())

    def left_out(self) -> Mapping[str, int]:
        """How many files of the source are not read, by ending. Opens none."""
        return {}

    @property
    def unit(self) -> str | None:
        """What its groups are called, `patients`; None if its samples have none."""
        return None

    @property
    def shown(self) -> str:
        """`digits`, or the file name of a data set with a path: `cifar10.parquet`."""
        path = getattr(self, "path", None)
        if path is None:
            return name_of(type(self))
        return Path(path).name

    def _refuse_where(self, where: dict[str, Value] | None) -> None:
        if where is not None:
            found = f"{type(self).__name__} has no columns to select rows by"
            raise FieldError("where", found, "Tables and parquet files do.")
