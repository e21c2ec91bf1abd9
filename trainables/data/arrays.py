"""Data that were given as objects in Python: NumPy arrays, or a map-style data set.

`Study.create` writes them once, as plain files in the study's folder; only these are read.
"""

import hashlib
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trainables.data.shared.array_files import (
    Contents,
    check_digests,
    file_of,
    read_contents,
    read_split,
)
from trainables.data.shared.column_notes import Spread, notes
from trainables.data.shared.splits import limit_notes, limited
from trainables.dataset import Dataset, Header, RawData, RawSplit, Rows
from trainables.fields import number, path_text
from trainables.machine import memory
from trainables.plain import Value
from trainables.problems import FieldError

ROWS = 4096  # at a time
UNIT = "groups"


@dataclass(frozen=True, kw_only=True)
class Arrays(Dataset):
    """Samples that `Study.create(data=...)` was given, as images or rows of numbers."""

    path: str = path_text(doc="folder that calstudy wrote, STUDY/data")
    limit: int | None = number(None, low=1, doc="maximum samples per split, stratified by label")

    @property
    def shown(self) -> str:
        """`STUDY/data`."""
        return f"{Path(self.path).parent.name}/{Path(self.path).name}"

    @property
    def unit(self) -> str | None:
        try:
            return UNIT if read_contents(self.path).has_groups else None
        except FieldError:  # reading it says so
            return None

    def source_digest(self) -> str:
        contents = read_contents(self.path)
        check_digests(self.path, contents)
        named = [contents.columns, contents.group_names]
        said = [contents.classes, named, contents.digests, self.limit]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def read(self) -> RawData:
        contents = read_contents(self.path)
        taken = self._taken(contents)
        size = sum(_bytes_of(split.images, rows) for split, rows in taken.values())
        if size > (most := memory()):
            found = f"the samples in {self.path} take {size / 1e9:,.1f} GB"
            there = f"this machine's memory has {most / 1e9:,.1f} GB"
            raise FieldError("path", f"{found}, {there}", "Set `limit`, or use smaller images.")
        splits = {}
        for name, (split, rows) in taken.items():
            is_whole = len(rows) == len(split.labels)
            images = split.images if is_whole else split.images[rows]
            groups = None if split.groups is None else split.groups[rows]
            splits[name] = RawSplit(images, split.labels[rows], groups)
        raw = RawData.of(contents.classes, splits)
        said = self._limit_notes(taken)
        if raw.train.images.ndim == 2:
            said = (*said, *_notes(raw.train, contents.columns))
        names = {int(number): name for number, name in contents.group_names.items()}
        return replace(raw, columns=contents.columns, notes=said, group_names=names)

    def _limit_notes(self, taken: dict[str, tuple[RawSplit, np.ndarray]]) -> tuple[str, ...]:
        if self.limit is None:
            return ()
        before = {name: split.groups for name, (split, _) in taken.items()}
        return limit_notes(
            self.limit, before, {name: rows for name, (_, rows) in taken.items()}, UNIT
        )

    def source_rows(self) -> Rows:
        contents = read_contents(self.path)
        return {
            contents.digests[file_of(name)]: rows
            for name, (_, rows) in self._taken(contents).items()
        }

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        self._refuse_where(where)
        contents = read_contents(self.path)
        taken = self._taken(contents)
        if "test" in taken:
            taken = {"test": taken["test"]}
        rows = {contents.digests[file_of(name)]: found for name, (_, found) in taken.items()}
        labels = np.concatenate([split.labels[found] for split, found in taken.values()])
        shape = next(iter(taken.values()))[0].images.shape[1:]
        return Header(rows, shape, labels, dict(enumerate(contents.classes)), contents.columns)

    def _taken(self, contents: Contents) -> dict[str, tuple[RawSplit, np.ndarray]]:
        """Each split, and its rows within the limit."""
        taken = {}
        for name in contents.splits:
            split = read_split(self.path, contents, name)
            count = len(contents.classes)
            rows = limited(split.labels, self.limit, name, count, split.groups)
            taken[name] = (split, rows)
        return taken


def _bytes_of(samples: np.ndarray, rows: np.ndarray) -> int:
    return len(rows) * math.prod(samples.shape[1:]) * samples.itemsize


def _notes(train: RawSplit, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Warnings about the columns of rows."""
    spread = Spread(train.images.shape[1])
    for start in range(0, len(train.images), ROWS):
        spread.add(train.images[start : start + ROWS].astype(np.float64))

    def called(place: int) -> str:
        return f"column '{columns[place]}'" if columns else f"column {place}"

    return notes(train.images, train.labels, [np.arange(len(train.labels))], spread, called)
