"""Shared base of data sets whose samples are rows of files: their splits, labels, class names.

A file with a column of split names, or a folder with one file per split (`train.parquet`) or its
shards (`train-00000-of-00002.parquet`).
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from trainables.data.shared.columns import check_column, whole
from trainables.data.shared.groups import (
    check_group,
    check_group_kind,
    check_several,
    group_column,
    numbered,
)
from trainables.data.shared.listing import Content, Labels, Listing
from trainables.data.shared.splits import (
    KNOWN_NAMES,
    check_splits,
    limit_notes,
    limited,
    split_names,
)
from trainables.dataset import Dataset, Header, Progress, RawData, RawSplit, Rows, Samples, nothing
from trainables.fields import number, path_text, setting
from trainables.files.data_files import digest_of
from trainables.kinds import unit_of
from trainables.plain import Value
from trainables.problems import FieldError, nearest

SPLIT_COLUMN = "split"
MOST_SPLITS = 5  # named in a warning


@dataclass(frozen=True, kw_only=True)
class RowFiles(Dataset, ABC):
    """Without `splits`, splits named train, validation (valid, val, dev) and test are used; with
    only train and validation, the latter becomes the sealed test split. With `splits`, other splits
    are ignored.
    """

    endings: ClassVar[tuple[str, ...]] = (".parquet",)  # of the files in a folder
    picks: ClassVar[str] = "a feature"  # what a column of a sample is

    path: str = path_text(doc="a parquet file, or a folder of them")
    label: str = setting("label", doc="column of class numbers")
    split_column: str = setting(SPLIT_COLUMN, doc="column of split names, if the file has one")
    splits: dict[str, str] | None = setting(
        None, doc="name of each split in the file, e.g. {train: train, test: val}"
    )
    group: str | None = setting(
        None, doc="column of what rows belong together, e.g. patient; no two splits share any"
    )
    limit: int | None = number(None, low=1, doc="maximum rows per split, stratified by label")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_splits(self.splits)
        if self.group is not None:
            picked = [self._picked] if isinstance(self._picked, str) else self._picked or []
            taken = dict.fromkeys(picked, self.picks)
            taken |= {self.split_column: "the split"}
            if self._label is not None:
                taken[self._label] = "the label"
            check_group(self.group, taken)

    @property
    def unit(self) -> str | None:
        return None if self.group is None else unit_of(self.group)

    # ---- what each kind of file does in its own way ----------------------------------------------

    @property
    @abstractmethod
    def _picked(self) -> str | list[str] | None:
        """The option that picks the columns of a sample."""

    @property
    def _label(self) -> str | None:
        """The column of labels; None: images have masks."""
        return self.label

    @property
    def _further(self) -> dict[str, Any]:
        """Options of one's own that select from the source, those that are given."""
        return {}

    @abstractmethod
    def _schema(self, file: Path) -> Any:
        """The Arrow schema of a file."""

    @abstractmethod
    def _read(self, file: Path, columns: list[str]) -> Any:
        """These columns of a file, an Arrow table."""

    @abstractmethod
    def _batches(self, file: Path, columns: list[str], size: int) -> Iterator[Any]:
        """The same, a record batch of about `size` rows at a time."""

    @abstractmethod
    def _content(
        self, listing: Listing, rows: dict[str, np.ndarray], progress: Progress = nothing
    ) -> Content:
        """The samples of these rows of each split, in row order. Raises FieldError."""

    @abstractmethod
    def _described(
        self, listing: Listing, rows: np.ndarray
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The shape of one of these samples, and the columns' names, with little decoded."""

    def _numbered(self, schemas: dict[Path, Any], columns: list[Any], splits: np.ndarray) -> Labels:
        """The labels. columns: theirs, an Arrow array of each file."""
        arrays = [column.to_numpy(zero_copy_only=False).astype(np.int64) for column in columns]
        names = self._metadata_names(schemas) or self._column_names(schemas)
        return Labels(np.concatenate(arrays), names)

    def _matches(self, file: Path, found: Any, value: Value) -> bool:
        """Whether a value of a column is the one in `where`."""
        return bool(found == value)

    # ---- a data set ------------------------------------------------------------------------------

    def source_digest(self) -> str:
        options = [self._picked, self.label, self.split_column, self.splits, self.limit]
        if self.group is not None:
            options.append(self.group)
        if self._further:
            options.append(self._further)
        digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
        for file in self._files():
            # In a folder the file name gives the split; a single file may have any name.
            name = file.relative_to(self.path) if Path(self.path).is_dir() else ""
            digest.update(f"{name} {digest_of('path', file)}\n".encode())
        return digest.hexdigest()

    def read(self, progress: Progress = nothing) -> RawData:
        listing = self._listing()
        num_classes, rows = self._taken(listing)
        content = self._content(listing, rows, progress)
        notes = (*self._left_out(listing), *self._limit_notes(listing, rows), *content.notes)
        splits = {
            name: RawSplit(content.arrays[name], listing.labels[taken], listing.groups_of(taken))
            for name, taken in rows.items()
        }
        return replace(
            RawData.of(content.classes or listing.classes(num_classes), splits),
            columns=content.columns,
            notes=notes,
            group_names=listing.group_names,
            marked=self._label is None,
            words=content.words,
        )

    def _left_out(self, listing: Listing) -> tuple[str, ...]:
        """What to say of rows in splits whose names are not known; nothing where `splits` says
        which to use."""
        used = split_names(self.splits, listing.split_names, self.path)
        others = [name for name in listing.split_names if name not in used.values()]
        if self.splits is not None or not others:
            return ()
        count = int(np.isin(listing.splits, others).sum())
        taken = ", ".join(f"{ours}: {theirs}" for ours, theirs in used.items())
        found = f"{count:,} rows are left out: their split is {either(others[:MOST_SPLITS])}"
        return (f"{found}; used are {{{taken}}}, `splits` names others",)

    def source_rows(self) -> Rows:
        listing = self._listing()
        return listing.by_file(np.concatenate(list(self._taken(listing)[1].values())))

    def samples(self, where: dict[str, Value] | None = None) -> Samples:
        """Rows with the values in `where`, by default of test; labels are not checked."""
        listing = self._listing()
        rows = self._sampled(listing, where)
        content = self._content(listing, {"all": rows})
        return Samples(
            content.arrays["all"],
            listing.labels[rows],
            listing.names,
            content.columns,
            listing.groups_of(rows),
            listing.group_names,
            marked=self._label is None,
            words=() if content.words is None else content.words.all,
        )

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        listing = self._listing()
        rows = self._sampled(listing, where)
        shape, columns = self._described(listing, rows)
        is_marked = self._label is None
        labels = None if is_marked else listing.labels[rows]
        return Header(listing.by_file(rows), shape, labels, listing.names, columns, is_marked)

    # ---- rows ------------------------------------------------------------------------------------

    def _taken(self, listing: Listing) -> tuple[int, dict[str, np.ndarray]]:
        """K, and the rows of each split."""
        rows = self._split(listing)
        num_classes = self._check_labels(listing, rows)
        if listing.groups is not None:
            check_several(self.path, listing.groups, np.concatenate(list(rows.values())))
        for name, taken in rows.items():
            groups = listing.groups_of(taken)
            labels = listing.labels[taken]
            rows[name] = taken[limited(labels, self.limit, name, num_classes, groups)]
        return num_classes, rows

    def _split(self, listing: Listing) -> dict[str, np.ndarray]:
        """The rows of each split, without a limit."""
        names = split_names(self.splits, listing.split_names, self.path)
        return {ours: np.flatnonzero(listing.splits == theirs) for ours, theirs in names.items()}

    def _limit_notes(self, listing: Listing, rows: dict[str, np.ndarray]) -> tuple[str, ...]:
        if self.limit is None or self.unit is None:
            return ()
        before = {name: listing.groups_of(there) for name, there in self._split(listing).items()}
        return limit_notes(self.limit, before, rows, self.unit)

    def _called(self, ours: str, there: Sequence[str]) -> str | None:
        """Our split's name among those in the source; None if it has none."""
        known = (theirs for theirs in there if theirs.lower() in KNOWN_NAMES[ours])
        return (self.splits or {}).get(ours) or next(known, None)

    def _sampled(self, listing: Listing, where: dict[str, Value] | None) -> np.ndarray:
        where = where or {}
        test = self._called("test", listing.split_names)
        whole = test is None or self.split_column in where
        kept = self._where(listing, where) & (whole | (listing.splits == test))
        rows = np.flatnonzero(kept)
        if not len(rows):
            mend = ""
            if any(isinstance(value, list) for value in where.values()):
                mend = "Each value must be a single one, not a list."
            raise FieldError("where", f"no row of {self.path} matches {json.dumps(where)}", mend)
        return rows

    def _where(self, listing: Listing, where: dict[str, Value]) -> np.ndarray:
        """[rows] bool: which rows have these values."""
        kept = np.ones(len(listing.labels), dtype=bool)
        if not where:
            return kept
        for start, file in zip(listing.starts, listing.files, strict=True):
            for column in where:
                check_column("where", file, column, listing.schemas[file].names)
            columns = self._read(file, list(where))
            for column, value in where.items():
                found = [self._matches(file, here, value) for here in columns[column].to_pylist()]
                kept[start : start + len(found)] &= np.array(found, dtype=bool)
        return kept

    def _files(self) -> list[Path]:
        path = Path(self.path)
        if path.exists() and not path.is_dir():
            return [path]
        if not path.exists():
            near = [other.name for other in self._inside(path.parent)][:20]
            hint = nearest(path.name, near) if near else ""
            raise FieldError("path", f"there is no {path}", hint)
        files = self._inside(path)
        if not files:
            kinds = either([ending.removeprefix(".") for ending in self.endings])
            hint = f"Give a {kinds} file, or a folder with {kinds} files."
            if near := sorted({str(file.parent) for file in self._inside(path, "*/")}):
                hint = nearest(str(path), near)
            raise FieldError("path", f"no {either(self.endings)} file in {path}", hint)
        return files

    def _inside(self, folder: Path, under: str = "") -> list[Path]:
        """The files in a folder, in order. under: of which folders below it."""
        return sorted(chain.from_iterable(folder.glob(f"{under}*{end}") for end in self.endings))

    def _listing(self) -> Listing:
        schemas = {file: self._schema(file) for file in self._files()}
        labels = []
        splits = []
        groups = []
        names: set[str] = set()
        starts = [0]
        for file, schema in schemas.items():
            self._check_schema(file, schema)
            wanted = (self._label, self.split_column, self.group)
            columns = self._read(file, [name for name in schema.names if name in wanted])
            labels.append(self._labels_in(file, columns))
            if self.split_column in columns.column_names:
                names_here = columns[self.split_column]
                column = whole("split_column", "split", "Add one.", file, names_here)
                splits.append(np.array(column.to_pylist(), dtype=str))
                here = splits[-1].tolist()
                names.update(here)
                if blank := [name for name in names if not name.strip()]:
                    problem = f"{file}, row {here.index(blank[0])}: the split is missing"
                    raise FieldError("split_column", problem, "Add one.")
            else:
                name = "train"
                if Path(self.path).is_dir():  # `train-00000-of-00002.parquet` is train
                    name = re.sub(r"-\d+-of-\d+$", "", file.stem)
                splits.append(np.full(columns.num_rows, name))
                names.add(name)
            if self.group is not None:
                groups.append(group_column(file, columns[self.group]))
            starts.append(starts[-1] + columns.num_rows)
        if starts[-1] == 0:
            raise FieldError("path", f"{self.path} has no rows: its train split is empty")
        of_rows = np.concatenate(splits)
        found = self._numbered(schemas, labels, of_rows)
        return Listing(
            files=list(schemas),
            schemas=schemas,
            starts=np.array(starts[:-1]),
            labels=found.numbers,
            splits=of_rows,
            split_names=sorted(names),
            class_names=found.class_names,
            words=found.words,
            groups=numbered(self.path, groups) if groups else None,
        )

    def _labels_in(self, file: Path, columns: Any) -> Any:
        """The column of labels in one piece."""
        return whole("label", "label", "Remove the row.", file, columns[self.label])

    def _check_schema(self, file: Path, schema: Any) -> None:
        if self._label is not None:
            check_column("label", file, self._label, schema.names)
        # Without a split column the file name gives the split, unless the user named a column.
        if self.split_column != SPLIT_COLUMN:
            check_column("split_column", file, self.split_column, schema.names)
        if self.group is not None:
            check_column("group", file, self.group, schema.names)
            check_group_kind(file, self.group, schema.field(self.group).type)

    def _parts(
        self, listing: Listing, wanted: np.ndarray, columns: list[str], size: int
    ) -> Generator[tuple[int, np.ndarray, Any], None, None]:
        """(index of the first in `wanted`, rows, their record batch), one batch at a time.

        wanted: row numbers in order.
        """
        for file, first in zip(listing.files, listing.starts, strict=True):
            for batch in self._batches(file, columns, size):
                start, stop = np.searchsorted(wanted, (first, first + len(batch)))
                if start < stop:
                    yield (
                        start,
                        wanted[start:stop],
                        batch.take(pa.array(wanted[start:stop] - first)),
                    )
                first += len(batch)

    # ---- labels ----------------------------------------------------------------------------------

    def _check_labels(self, listing: Listing, rows: dict[str, np.ndarray]) -> int:
        """K: labels are 0 to K - 1 in every split, and train has them all; FieldError otherwise.

        1 of images with masks: their classes are in these.
        """
        labels = listing.labels
        for name, taken in rows.items():
            if not len(taken):
                raise FieldError("path", f"the {name} split of {self.path} is empty")
        if self._label is None:
            return 1
        for taken in rows.values():
            negative = taken[labels[taken] < 0]
            if len(negative):
                found = f"{listing.place(negative[0])}: the label is {labels[negative[0]]}"
                fix = "Remove rows without a label, or exclude their split with `splits`."
                raise FieldError("label", found, f"Labels start at 0; {fix}")
        present = np.unique(labels[rows["train"]])
        num_classes = int(present[-1]) + 1
        if len(present) < num_classes:
            gap = int(np.flatnonzero(present != np.arange(len(present)))[0])
            problem = f"no training sample has label {gap}, but the highest is {num_classes - 1}."
            raise FieldError("label", f"{problem} Number the classes from 0 without gaps")
        if num_classes == 1:
            found = f"all training samples of {self.path} have label {listing.said(0)}"
            raise FieldError("label", f"{found}; at least two classes are needed")
        for name, taken in rows.items():
            beyond = taken[labels[taken] >= num_classes]
            if len(beyond):
                said = listing.said(labels[beyond[0]])
                found = f"{listing.place(beyond[0])}: the label is {said} in {name}"
                there = "none" if listing.words else f"0 to {num_classes - 1}"
                problem = f"{found}, but train has {there}."
                raise FieldError("label", f"{problem} Remove classes that are not in train")
        return num_classes

    def _metadata_names(self, schemas: dict[Path, Any]) -> list[str] | None:
        """Class names from the first file's metadata, written by Hugging Face's `datasets`."""
        try:
            first = next(iter(schemas.values()))
            features = json.loads(first.metadata[b"huggingface"])["info"]["features"]
            names = features[self.label]["names"]
        except (TypeError, KeyError, ValueError):
            return None
        if not isinstance(names, list):
            return None
        return [str(name) for name in names]

    def _column_names(self, schemas: dict[Path, Any]) -> list[str] | None:
        """Names from a text column `class`, if each label has exactly one, and its own."""
        names: dict[int, set[str]] = {}
        for file, schema in schemas.items():
            if "class" not in schema.names or self.label == "class":
                return None
            if not pa.types.is_string(schema.field("class").type):
                return None
            columns = self._read(file, [self.label, "class"])
            for pair in columns.group_by([self.label, "class"]).aggregate([]).to_pylist():
                if (label := int(pair[self.label])) >= 0:
                    names.setdefault(label, set()).add(pair["class"])
        named = list(chain.from_iterable(names[label] for label in sorted(names)))
        if sorted(names) != list(range(len(named))):
            return None
        if None in named or len(set(named)) < len(named):
            return None
        return named


def either(words: Sequence[str]) -> str:
    """`a, b or c`."""
    *rest, last = words
    return f"{', '.join(rest)} or {last}" if rest else last
