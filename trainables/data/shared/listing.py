"""The rows of a source's files, as data sets number them, and what is taken of them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainables.data.shared.groups import Grouped
from trainables.dataset import Rows, Words
from trainables.files.data_files import digest_of


class Labels(NamedTuple):
    """The labels of all rows, as numbers; zeros where images have masks."""

    numbers: np.ndarray  # [rows] int64
    class_names: list[str] | None  # if the files have them
    words: bool = False  # whether the files have words in place of numbers


class Listing(NamedTuple):
    """All rows of all files, numbered consecutively."""

    files: list[Path]
    schemas: dict[Path, Any]  # of Arrow, of each file
    starts: np.ndarray  # [files] number of the first row of each file
    labels: np.ndarray  # [rows] int64
    splits: np.ndarray  # [rows] the split's name in the source
    split_names: list[str]
    class_names: list[str] | None
    words: bool
    groups: Grouped | None = None  # of all rows

    @property
    def names(self) -> dict[int, str]:
        return dict(enumerate(self.class_names or []))

    def classes(self, num_classes: int) -> tuple[str, ...]:
        """K names, or numbers where the source has no name for each."""
        names = (self.class_names or [])[:num_classes]
        return tuple(names if len(names) == num_classes else map(str, range(num_classes)))

    def groups_of(self, rows: np.ndarray) -> np.ndarray | None:
        """int64 [rows]; None if there are none."""
        return None if self.groups is None else self.groups.numbers[rows]

    @property
    def group_names(self) -> dict[int, str]:
        return {} if self.groups is None else self.groups.names

    def by_file(self, rows: np.ndarray) -> Rows:
        """Row numbers by the digest of the file, whatever its name."""
        found: Rows = {}
        stops = [*self.starts[1:], len(self.labels)]
        for file, first, stop in zip(self.files, self.starts, stops, strict=True):
            inside = rows[(rows >= first) & (rows < stop)] - first
            if len(inside):
                digest = digest_of("path", file)
                found[digest] = np.concatenate([found.get(digest, inside[:0]), inside])
        return found

    def file_of(self, row: int) -> int:
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def place(self, row: int) -> str:
        """`train.parquet, row 17`, for messages; rows count from 0 in each file."""
        file = self.file_of(row)
        return f"{self.files[file]}, row {row - self.starts[file]}"

    def said(self, label: int) -> str:
        """The label as it is in the file."""
        return f"'{self.names[label]}'" if self.words else str(label)


class Content(NamedTuple):
    """The samples of each split, and what a data set says of them."""

    arrays: dict[str, np.ndarray]
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()  # of masks
    words: Words | None = None  # of texts
