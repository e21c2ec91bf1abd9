"""Images in parquet files as on data hubs: one row per sample, an encoded image and its label.

A file with a column of split names, or a folder with one file per split (`train.parquet`) or its
shards (`train-00000-of-00002.parquet`).
"""

import hashlib
import json
import re
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trainables.data.shared.images import SMALL_BYTES, check_memory, decode, shape_of
from trainables.data.shared.splits import KNOWN_NAMES, check_splits, limited, split_names
from trainables.dataset import Dataset, Header, Progress, RawData, RawSplit, Rows, Samples, nothing
from trainables.fields import number, path_text, text
from trainables.files.digest import file_digest
from trainables.machine import memory
from trainables.plain import Value
from trainables.problems import FieldError, nearest

SPLIT_COLUMN = "split"
# The memory for a row, its image aside; a few bytes of a file may claim any number of rows.
ROW_BYTES = 128
SLICE = 256  # images a thread decodes at a time

T = TypeVar("T")


class _Table(NamedTuple):
    """All rows of all files, numbered consecutively."""

    files: list[Path]
    starts: np.ndarray  # [files] number of the first row of each file
    labels: np.ndarray  # [rows] int64
    splits: np.ndarray  # [rows] the split's name in the source
    split_names: list[str]
    class_names: list[str] | None  # if the files have them

    @property
    def names(self) -> dict[int, str]:
        return dict(enumerate(self.class_names or []))

    def place(self, row: int) -> str:
        """`train.parquet, row 17`, for messages; rows count from 0 in each file."""
        file = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"{self.files[file]}, row {row - self.starts[file]}"


@dataclass(frozen=True, kw_only=True)
class Parquet(Dataset):
    """Grayscale images keep one channel; if any image has colour, all become RGB.

    Without `splits`, splits named train, validation (valid, val, dev) and test are used; with only
    train and validation, the latter becomes the sealed test split. With `splits`, other splits are
    ignored.
    """

    path: str = path_text(doc="a parquet file, or a folder of them")
    image: str = text("image", doc="column of encoded images, or of structs with them in `bytes`")
    label: str = text("label", doc="column of class numbers")
    split_column: str = text(SPLIT_COLUMN, doc="column of split names, if the file has one")
    splits: dict[str, str] | None = text(
        None, doc="name of each split in the file, e.g. {train: train, test: val}"
    )
    limit: int | None = number(None, low=1, doc="maximum rows per split, stratified by label")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_splits(self.splits)

    def source_digest(self) -> str:
        options = [self.image, self.label, self.split_column, self.splits, self.limit]
        digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
        for file in self._files():
            # In a folder the file name gives the split; a single file may have any name.
            name = "" if Path(self.path).is_file() else file.name
            digest.update(f"{name} {file_digest(file)}\n".encode())
        return digest.hexdigest()

    def read(self, progress: Progress = nothing) -> RawData:
        table = self._table()
        num_classes, rows = self._taken(table)
        images = self._images(table, rows, progress)
        classes = (table.class_names or [])[:num_classes]
        if len(classes) < num_classes:
            classes = list(map(str, range(num_classes)))
        splits = {name: RawSplit(images[name], table.labels[taken]) for name, taken in rows.items()}
        return RawData.of(tuple(classes), splits)

    def source_rows(self) -> Rows:
        table = self._table()
        return _by_file(table, np.concatenate(list(self._taken(table)[1].values())))

    def _taken(self, table: _Table) -> tuple[int, dict[str, np.ndarray]]:
        """K, and the rows of each split."""
        names = split_names(self.splits, table.split_names, self.path)
        rows = {ours: np.flatnonzero(table.splits == theirs) for ours, theirs in names.items()}
        num_classes = self._check_labels(table, rows)
        for name, taken in rows.items():
            rows[name] = taken[limited(table.labels[taken], self.limit, name, num_classes)]
        return num_classes, rows

    def samples(self, where: dict[str, Value] | None = None) -> Samples:
        """Rows with the values in `where`, by default of test; labels are not checked."""
        table = self._table()
        rows = self._sampled(table, where)
        return Samples(self._images(table, {"all": rows})["all"], table.labels[rows], table.names)

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        table = self._table()
        rows = self._sampled(table, where)
        shape = self._first_shape(table, rows)
        return Header(_by_file(table, rows), shape, table.labels[rows], table.names)

    def _first_shape(self, table: _Table, rows: np.ndarray) -> tuple[int, int, int]:
        """[C, H, W] of the first of these images, from its header."""
        with closing(self._parts(table, rows[:1])) as parts:
            encoded = _encoded(next(parts)[2])[0]
        return self._of_image(table, rows[0], encoded, shape_of)

    def _sampled(self, table: _Table, where: dict[str, Value] | None) -> np.ndarray:
        where = where or {}
        known = (theirs for theirs in table.split_names if theirs.lower() in KNOWN_NAMES["test"])
        test = (self.splits or {}).get("test") or next(known, None)
        whole = test is None or self.split_column in where
        kept = self._where(table, where) & (whole | (table.splits == test))
        rows = np.flatnonzero(kept)
        if not len(rows):
            mend = ""
            if any(isinstance(value, list) for value in where.values()):
                mend = "Each value must be a single one, not a list."
            raise FieldError("where", f"no row of {self.path} matches {json.dumps(where)}", mend)
        return rows

    def _where(self, table: _Table, where: dict[str, Value]) -> np.ndarray:
        """[rows] bool: which rows have these values."""
        kept = np.ones(len(table.labels), dtype=bool)
        if not where:
            return kept
        for start, file in zip(table.starts, table.files, strict=True):
            with _opened(file) as source:
                for column in where:
                    _check_column("where", file, column, source.schema_arrow.names)
                columns = source.read(list(where))
            for column, value in where.items():
                found = [here == value for here in columns[column].to_pylist()]
                kept[start : start + len(found)] &= np.array(found, dtype=bool)
        return kept

    def _files(self) -> list[Path]:
        path = Path(self.path)
        if path.is_file():
            return [path]
        if not path.exists():
            near = [other.name for other in sorted(path.parent.glob("*.parquet"))][:20]
            hint = nearest(path.name, near) if near else ""
            raise FieldError("path", f"there is no {path}", hint)
        files = sorted(path.glob("*.parquet"))
        if not files:
            hint = "Give a parquet file, or a folder with parquet files."
            if near := sorted({str(file.parent) for file in path.glob("*/*.parquet")}):
                hint = nearest(str(path), near)
            raise FieldError("path", f"no .parquet file in {path}", hint)
        return files

    def _table(self) -> _Table:
        files = self._files()
        labels = []
        splits = []
        names: set[str] = set()
        starts = [0]
        for file in files:
            columns = self._read(file)
            column = _whole("label", "label", "Remove the row.", file, columns[self.label])
            labels.append(column.to_numpy(zero_copy_only=False).astype(np.int64))
            if self.split_column in columns.column_names:
                names_here = columns[self.split_column]
                column = _whole("split_column", "split", "Add one.", file, names_here)
                splits.append(np.array(column.to_pylist(), dtype=str))
                names.update(splits[-1].tolist())
            else:
                name = "train"
                if Path(self.path).is_dir():  # `train-00000-of-00002.parquet` is train
                    name = re.sub(r"-\d+-of-\d+$", "", file.stem)
                splits.append(np.full(columns.num_rows, name))
                names.add(name)
            starts.append(starts[-1] + columns.num_rows)
        if starts[-1] == 0:
            raise FieldError("path", f"{self.path} has no rows: its train split is empty")
        return _Table(
            files=files,
            starts=np.array(starts[:-1]),
            labels=np.concatenate(labels),
            splits=np.concatenate(splits),
            split_names=sorted(names),
            class_names=self._metadata_names(files[0]) or self._column_names(files),
        )

    def _read(self, file: Path) -> Any:
        """The label column and, if there is one, the split column, after checking the schema."""
        with _opened(file) as source:
            schema = source.schema_arrow
            self._check_schema(file, schema)
            wanted = (self.label, self.split_column)
            return source.read([name for name in schema.names if name in wanted])

    def _check_schema(self, file: Path, schema: Any) -> None:
        for option in ("image", "label", "split_column"):
            column = getattr(self, option)
            # Without a split column the file name gives the split, unless the user named a column.
            if (option, column) != ("split_column", SPLIT_COLUMN):
                _check_column(option, file, column, schema.names)
        kind = schema.field(self.image).type
        if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            kind = kind.field("bytes").type
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            found = f"{file}: column '{self.image}' has type {kind}"
            raise FieldError("image", f"{found}, not encoded images (e.g. PNG)")
        kind = schema.field(self.label).type
        if not pa.types.is_integer(kind):
            fix = "Number the classes from 0."
            if others := [field.name for field in schema if pa.types.is_integer(field.type)]:
                fix = f"Integer columns: {', '.join(others)}."
            found = f"{file}: column '{self.label}' has type {kind}"
            raise FieldError("label", f"{found}, not integers", fix)

    def _check_labels(self, table: _Table, rows: dict[str, np.ndarray]) -> int:
        """K: labels are 0 to K - 1 in every split, and train has them all; FieldError otherwise."""
        for name, taken in rows.items():
            if not len(taken):
                raise FieldError("path", f"the {name} split of {self.path} is empty")
            negative = taken[table.labels[taken] < 0]
            if len(negative):
                found = f"{table.place(negative[0])}: the label is {table.labels[negative[0]]}"
                fix = "Remove rows without a label, or exclude their split with `splits`."
                raise FieldError("label", found, f"Labels start at 0; {fix}")
        present = np.unique(table.labels[rows["train"]])
        num_classes = int(present[-1]) + 1
        if len(present) < num_classes:
            gap = int(np.flatnonzero(present != np.arange(len(present)))[0])
            problem = f"no training sample has label {gap}, but the highest is {num_classes - 1}."
            raise FieldError("label", f"{problem} Number the classes from 0 without gaps")
        if num_classes == 1:
            found = f"all training samples of {self.path} have label 0"
            raise FieldError("label", f"{found}; at least two classes are needed")
        for name, taken in rows.items():
            beyond = taken[table.labels[taken] >= num_classes]
            if len(beyond):
                found = (
                    f"{table.place(beyond[0])}: the label is {table.labels[beyond[0]]} in {name}"
                )
                problem = f"{found}, but train has 0 to {num_classes - 1}."
                raise FieldError("label", f"{problem} Remove classes that are not in train")
        return num_classes

    def _images(
        self, table: _Table, rows: dict[str, np.ndarray], progress: Progress = nothing
    ) -> dict[str, np.ndarray]:
        """For each split uint8 [N, C, H, W], in row order. Raises FieldError."""
        wanted = np.concatenate(list(rows.values()))
        order = np.argsort(wanted)
        check_memory(len(wanted), self._first_shape(table, wanted[order]))
        chunks: list[tuple[int, np.ndarray]] = []
        # A small image takes longer in Python than in the decoder: threads would only wait for each
        # other.
        small = sum(file.stat().st_size for file in table.files) < SMALL_BYTES * len(table.labels)
        with ThreadPoolExecutor(1 if small else None) as pool:
            parts = self._parts(table, wanted[order])
            for start, chunk in pool.map(lambda part: self._decoded(table, *part), parts):
                if chunks and chunk.shape[1:3] != chunks[0][1].shape[1:3]:
                    self._refuse_sizes(
                        table, wanted[order[start]], chunk[0], wanted[order[0]], chunks[0][1][0]
                    )
                chunks.append((start, chunk))
                progress(start + len(chunk), len(wanted))
        channels = max(chunk.shape[3] for _, chunk in chunks)
        images = np.empty((len(wanted), channels, *chunks[0][1].shape[1:3]), dtype=np.uint8)
        while chunks:
            start, chunk = chunks.pop()
            # Grayscale broadcasts to three channels if others have colour.
            images[order[start : start + len(chunk)]] = chunk.transpose(0, 3, 1, 2)
        ends = np.cumsum([len(taken) for taken in rows.values()])
        return dict(zip(rows, np.split(images, ends[:-1]), strict=True))

    def _parts(
        self, table: _Table, wanted: np.ndarray
    ) -> Generator[tuple[int, np.ndarray, Any], None, None]:
        """(index of the first in `wanted`, rows, encoded images), one slice at a time."""
        for file, first in zip(table.files, table.starts, strict=True):
            with _opened(file) as source:
                for batch in source.iter_batches(SLICE, columns=[self.image]):
                    start, stop = np.searchsorted(wanted, (first, first + len(batch)))
                    if start < stop:
                        column = batch.column(self.image).take(pa.array(wanted[start:stop] - first))
                        yield start, wanted[start:stop], column
                    first += len(batch)

    def _decoded(
        self, table: _Table, start: int, rows: np.ndarray, column: Any
    ) -> tuple[int, np.ndarray]:
        """start, and the images [n, H, W, C] uint8; C is 3 if any has colour, else 1."""
        images: list[np.ndarray] = []
        for row, value in zip(rows, _encoded(column), strict=True):
            images.append(self._of_image(table, row, value, decode))
            if images[-1].shape[:2] != images[0].shape[:2]:
                self._refuse_sizes(table, row, images[-1], rows[0], images[0])
        channels = max(image.shape[2] for image in images)
        shape = (*images[0].shape[:2], channels)
        return start, np.stack([np.broadcast_to(image, shape) for image in images])

    def _of_image(self, table: _Table, row: int, value: Any, function: Callable[[bytes], T]) -> T:
        """The function's result for the encoded image."""
        try:
            return function(value)
        # Decoders raise anything on bad bytes.
        except Exception as error:
            found = "is missing" if value is None else f"cannot be decoded ({error})"
            raise FieldError(
                "image", f"{table.place(row)}: the image {found}", "Fix or remove the row."
            ) from None

    def _refuse_sizes(
        self, table: _Table, row: int, image: np.ndarray, other_row: int, other: np.ndarray
    ) -> None:
        found = f"{table.place(row)}: the image is {image.shape[1]}x{image.shape[0]} pixels"
        there = f"the one in {table.place(other_row)} is {other.shape[1]}x{other.shape[0]}"
        raise FieldError("image", f"{found}, {there}", "Resize all images to one size.")

    def _metadata_names(self, file: Path) -> list[str] | None:
        """Class names from the schema metadata written by Hugging Face's `datasets`."""
        try:
            features = json.loads(pq.read_schema(file).metadata[b"huggingface"])["info"]["features"]
            names = features[self.label]["names"]
        except (TypeError, KeyError, ValueError):
            return None
        if not isinstance(names, list):
            return None
        return [str(name) for name in names]

    def _column_names(self, files: list[Path]) -> list[str] | None:
        """Names from a text column `class`, if each label has exactly one, and its own."""
        names: dict[int, set[str]] = {}
        for file in files:
            with _opened(file) as source:
                schema = source.schema_arrow
                if "class" not in schema.names:
                    return None
                if not pa.types.is_string(schema.field("class").type):
                    return None
                columns = source.read([self.label, "class"])
            for pair in columns.group_by([self.label, "class"]).aggregate([]).to_pylist():
                if pair[self.label] >= 0:
                    names.setdefault(pair[self.label], set()).add(pair["class"])
        named = list(chain.from_iterable(names[label] for label in sorted(names)))
        if sorted(names) != list(range(len(named))):
            return None
        if None in named or len(set(named)) < len(named):
            return None
        return named


def _by_file(table: _Table, rows: np.ndarray) -> Rows:
    """Row numbers by the digest of the file, whatever its name."""
    found: Rows = {}
    for file, first, stop in zip(
        table.files, table.starts, [*table.starts[1:], len(table.labels)], strict=True
    ):
        inside = rows[(rows >= first) & (rows < stop)] - first
        if len(inside):
            digest = file_digest(file)
            found[digest] = np.concatenate([found.get(digest, inside[:0]), inside])
    return found


def _check_column(option: str, file: Path, column: str, names: list[str]) -> None:
    if column not in names:
        raise FieldError(option, f"{file} has no column '{column}'", nearest(column, names))


def _encoded(column: Any) -> list[Any]:
    """The encoded images; None where one is missing."""
    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
    encoded: list[Any] = column.to_pylist()
    return encoded


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """The parquet file; pyarrow's errors become a FieldError."""
    try:
        with pq.ParquetFile(file) as source:
            _check_footer(file, source.metadata)
            yield source
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise FieldError("path", f"{file} cannot be read as parquet: {reason}") from None


def _check_footer(file: Path, footer: Any) -> None:
    """Raise FieldError if memory cannot hold a row group, of which pyarrow reads whole columns."""
    limit = memory()
    what = f"{footer.num_rows:,} rows"
    fix = "Keep fewer rows."
    needed = footer.num_rows * ROW_BYTES
    if needed <= limit:
        what = "a row group"
        fix = "Write smaller row groups."
        groups = map(footer.row_group, range(footer.num_row_groups))
        needed = max((group.total_byte_size for group in groups), default=0)
    if needed > limit:
        found = f"{what} of {file} would take {needed / 1e9:,.1f} GB"
        raise FieldError("path", f"{found}, this machine's memory has {limit / 1e9:,.1f} GB", fix)


def _whole(option: str, what: str, mend: str, file: Path, column: Any) -> Any:
    """The column in one piece. Raises FieldError if a value is missing."""
    column = column.combine_chunks()
    if column.null_count:
        row = pc.index(column.is_null(), True)
        raise FieldError(option, f"{file}, row {row}: the {what} is missing", mend)
    return column
