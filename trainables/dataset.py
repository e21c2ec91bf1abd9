"""What every data set owes, and what a trial is handed: train and validation, never test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trainables.fields import FieldError, Settings, choice, number


class RawSplit(NamedTuple):
    """images: [N, C, H, W] uint8. labels: [N] int64, in [0, K)."""

    images: np.ndarray
    labels: np.ndarray


class Samples(NamedTuple):
    """Samples that models trained on other data are asked about."""

    images: np.ndarray  # uint8 [N, C, H, W]
    labels: np.ndarray  # int64 [N]; -1: none
    names: dict[int, str]  # of the labels, where the source tells them


@dataclass(frozen=True)
class RawData:
    """A data set as its source has it; where a split is None it is carved by seed."""

    classes: tuple[str, ...]  # names, in order of their label; K of them
    train: RawSplit
    validation: RawSplit | None = None
    test: RawSplit | None = None


@dataclass(frozen=True)
class Dataset(Settings, ABC):
    """Options every data set has; its own come as fields of the subclass."""

    validation: float = number(0.2, above=0, below=1, doc="share of train, where the source has none")
    meta: float = number(0.1, above=0, below=1, doc="share of what train then is, for methods that learn on it")
    augment: str = choice("none", "flip", "crop", "crop_flip", doc="of train batches, at random")

    @abstractmethod
    def source_digest(self) -> str:
        """sha256 of the source's bytes and of the options that say what is read from it. Cheap: decodes nothing.

        Raises FieldError where the source is not there.
        """

    @abstractmethod
    def read(self) -> RawData:
        """Decode the whole source. Raises FieldError (field, what was found, the mend) where it cannot be used."""

    def samples(self, where: dict[str, Any] | None = None) -> Samples:
        """The test split where the source has one, else all of it. where: column values, of a table."""
        if where is not None:
            raise FieldError("where", f"{type(self).__name__} has no columns to pick rows by; a parquet file has.")
        raw = self.read()
        whole = [raw.train] if raw.validation is None else [raw.train, raw.validation]
        parts = whole if raw.test is None else [raw.test]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return Samples(images, labels, dict(enumerate(raw.classes)))
