"""The interface of a data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainables.fields import FieldError, Settings, choice, number
from trainables.plugins import name_of

Rows = dict[str, np.ndarray]  # row numbers of source files, by what identifies a file


Progress = Callable[[int, int], None]  # images decoded, of how many


def nothing(done: int, total: int) -> None:
    """Progress that nobody follows."""


class RawSplit(NamedTuple):
    """images: [N, C, H, W] uint8. labels: [N] int64, in [0, K)."""

    images: np.ndarray
    labels: np.ndarray


class Samples(NamedTuple):
    """Samples for evaluating models trained on other data."""

    images: np.ndarray  # uint8 [N, C, H, W]
    labels: np.ndarray  # int64 [N]; -1: none
    names: dict[int, str]  # of the labels, if the source has them


class Header(NamedTuple):
    """What is known of samples before they are decoded; None: not known before."""

    rows: Rows
    shape: tuple[int, int, int] | None = None  # C, H, W; C is 1 if the first image is grayscale
    labels: np.ndarray | None = None  # int64, of all samples or one of each class
    names: dict[int, str] | None = None  # of the labels; empty if the source has none


@dataclass(frozen=True)
class RawData:
    """A data set as in its source; a split that is None is carved by seed."""

    classes: tuple[str, ...]  # K names, in label order
    train: RawSplit
    validation: RawSplit | None = None
    test: RawSplit | None = None


@dataclass(frozen=True)
class Dataset(Settings, ABC):
    """Options of every data set; subclasses add their own as fields."""

    validation: float = number(
        0.2, above=0, below=1, doc="fraction of train, if the source has no validation split"
    )
    meta: float = number(
        0.1, above=0, below=1, doc="fraction of the remaining train split, for methods that need it"
    )
    augment: str = choice(
        *("none", "flip", "crop", "crop_flip", "alternating_flip", "crop_alternating_flip"),
        doc="random augmentation of training batches; alternating: flipped at random in the first epoch, then by turns",
    )
    padding: int | None = number(
        None,
        low=1,
        doc="zeros on each side before a crop, in pixels; null: an eighth of the height",
    )

    def __init_subclass__(cls, **options: Any) -> None:
        """A class that reads its samples in its own way must describe them itself: it inherits no description."""
        super().__init_subclass__(**options)
        if {"read", "samples"} & vars(cls).keys():
            for name in {"source_rows", "samples_header"} - vars(cls).keys():
                setattr(cls, name, getattr(Dataset, name))

    @abstractmethod
    def source_digest(self) -> str:
        """sha256 of the source's bytes and of the options that select from it. Cheap: decodes nothing.

        Raises FieldError if the source does not exist.
        """

    @abstractmethod
    def read(self) -> RawData:
        """Decode the whole source. Raises FieldError if it cannot be used.

        One that takes long may take `progress: Progress = nothing`, by that name, and call it now and then.
        """

    def samples(self, where: dict[str, Any] | None = None) -> Samples:
        """The test split if the source has one, else all of it. where: column values, for a table."""
        self._refuse_where(where)
        raw = self.read()
        whole = [raw.train] if raw.validation is None else [raw.train, raw.validation]
        parts = whole if raw.test is None else [raw.test]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return Samples(images, labels, dict(enumerate(raw.classes)))

    def source_rows(self) -> Rows:
        """The rows of the source that `read` uses. Decodes nothing; by default the whole source is a single row."""
        return {f"{name_of(type(self))} {self.source_digest()}": np.zeros(1, dtype=np.int64)}

    def samples_header(self, where: dict[str, Any] | None = None) -> Header:
        """What is known of `samples(where)`. Decodes nothing. Raises FieldError if the source does not exist."""
        if type(self).samples is Dataset.samples:
            self._refuse_where(where)
        return Header(self.source_rows())

    @property
    def shown(self) -> str:
        """`digits`, or the file name of a data set with a path: `cifar10.parquet`."""
        path = getattr(self, "path", None)
        return name_of(type(self)) if path is None else Path(path).name

    def _refuse_where(self, where: dict[str, Any] | None) -> None:
        if where is not None:
            raise FieldError(
                "where",
                f"{type(self).__name__} has no columns to select rows by; parquet files do.",
            )
