"""Rows of numbers in parquet, csv or npz files: embeddings, or measurements in columns.

A file with a column of split names, or a folder with one file per split (`train.csv`) or its shards
(`train-00000-of-00002.parquet`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainables.data.shared.column_notes import Spread, notes
from trainables.data.shared.columns import Columns, NpzColumns, check_column, parsed
from trainables.data.shared.groups import check_group
from trainables.data.shared.listing import Content, Listing
from trainables.data.shared.named_rows import NamedRows, ending_of, is_class_number
from trainables.data.shared.rows import SPLIT_COLUMN
from trainables.dataset import Progress, nothing
from trainables.fields import path_text, setting
from trainables.kinds import NOUNS
from trainables.machine import memory
from trainables.problems import FieldError

LABEL = "label"
# As pandas saves an index without a name; in a csv the name is empty.
INDEX = re.compile(r"(__index_level_\d+__|Unnamed: \d+)?")
MOST_SHOWN = 5  # columns of a warning
VALUES = 2**22  # numbers read at a time
ENCODE = "Encode it as numbers, e.g. as a column of 0 and 1 for each word."


class Feature(NamedTuple):
    """A column that is taken. width: the numbers in each of its lists; None: it has no lists."""

    name: str
    width: int | None

    @property
    def size(self) -> int:
        return 1 if self.width is None else self.width

    @property
    def shown(self) -> str:
        return self.name if self.width is None else f"{self.name}[{self.width}]"


@dataclass(frozen=True, kw_only=True)
class Table(NamedRows):
    """Each row is a sample, of numbers that become float32; its label is a number or a word.

    Without `features`, the samples are the one column of lists, or all columns of numbers but
    label, split and group. Without `splits`, splits named train, validation (valid, val, dev) and
    test are used; with only train and validation, the latter becomes the sealed test split.
    """

    noun: ClassVar[str] = NOUNS["features"]
    endings: ClassVar[tuple[str, ...]] = (".parquet", ".csv", ".npz")

    path: str = path_text(doc="a .parquet, .csv or .npz file, or a folder of them")
    label: str = setting(LABEL, doc="column of class numbers or words; of an npz, `labels`")
    features: str | list[str] | None = setting(
        None, doc="column or columns of a sample; null: the only column of lists, or all of numbers"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self._wanted or []
        if self.features == [] or not all(isinstance(name, str) for name in names):
            raise FieldError("features", f"must name columns, got {self.features!r}")
        for place, name in enumerate(names):
            if name in names[:place]:
                raise FieldError("features", f"'{name}' is listed twice", "Remove one.")
            for option in ("label", "split_column"):
                if name == getattr(self, option):
                    what = option.removesuffix("_column")
                    raise FieldError("features", f"'{name}' is the {what}", "Remove it.")

    # ---- files -----------------------------------------------------------------------------------

    @property
    def _picked(self) -> str | list[str] | None:
        return self.features

    @property
    def _wanted(self) -> list[str] | None:
        return [self.features] if isinstance(self.features, str) else self.features

    def _columns(self, file: Path) -> Columns:
        if ending_of(file) != ".npz":
            return super()._columns(file)
        features, *others = self._wanted or ["features"]
        if others:
            found = f"{file} has one array of features, not {len(others) + 1}"
            raise FieldError("features", found, "Name one array.")
        arrays = {
            features: features,
            self.label: "labels" if self.label == LABEL else self.label,
            self.split_column: "splits" if self.split_column == SPLIT_COLUMN else self.split_column,
        }
        required = {features: "features", self.label: "label"}
        if self.group is not None:
            taken = {
                features: "a feature",
                self.label: "the label",
                self.split_column: "the split",
            }
            check_group(self.group, {arrays[name]: what for name, what in taken.items()})
            arrays[self.group] = self.group
            required[self.group] = "group"
        return NpzColumns(file, memory(), arrays, features, required)

    # ---- features --------------------------------------------------------------------------------

    def _features(self, listing: Listing) -> list[Feature]:
        """The columns of a sample, in the order of train's first file. All files have them."""
        first = self._first_of_train(listing)
        schema = listing.schemas[first]
        names = self._wanted or _usual(first, schema, self._others)
        for file, there in listing.schemas.items():
            _check_features(file, there, names, schema)
        return [Feature(name, self._width(first, schema.field(name))) for name in names]

    def _first_of_train(self, listing: Listing) -> Path:
        """The file with the first row of train, as which the others are read."""
        train = self._called("train", listing.split_names)
        return listing.files[listing.file_of(int((listing.splits == train).argmax()))]

    def _width(self, file: Path, field: Any) -> int | None:
        if not pa.types.is_nested(field.type):
            return None
        if pa.types.is_fixed_size_list(field.type):
            return int(field.type.list_size)
        lists = next(iter(self._batches(file, [field.name], 1))).column(0)
        width: int | None = pc.list_value_length(lists)[0].as_py()
        if not width:
            _refuse(f"{file}, row 0", field.name, "the list is missing or empty", "Remove the row.")
        return width

    def _described(
        self, listing: Listing, rows: np.ndarray
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        features = self._features(listing)
        return (sum(feature.size for feature in features),), _shown(listing, features)

    def _content(
        self, listing: Listing, rows: dict[str, np.ndarray], progress: Progress = nothing
    ) -> Content:
        """For each split float32 [N, D], in row order. Raises FieldError."""
        features = self._features(listing)
        columns = sum(feature.size for feature in features)
        wanted = np.concatenate(list(rows.values()))
        order = np.argsort(wanted)
        _check_memory(self.path, len(wanted), columns)
        table = np.empty((len(wanted), columns), dtype=np.float32)
        spread = Spread(columns)
        in_train = np.repeat([name == "train" for name in rows], [len(t) for t in rows.values()])
        names = [feature.name for feature in features]
        size = max(VALUES // columns, 1)
        for start, taken, batch in self._parts(listing, wanted[order], names, size):
            values = _values(listing, taken, batch, features)
            places = order[start : start + len(values)]
            with np.errstate(over="ignore"):
                table[places] = values
            _check_finite(listing, taken, values, table[places], features)
            spread.add(values[in_train[places]])
            progress(start + len(values), len(wanted))
        ends = np.cumsum([len(taken) for taken in rows.values()])
        arrays = dict(zip(rows, np.split(table, ends[:-1]), strict=True))
        said: tuple[str, ...] = ()
        if "train" in rows:
            numberings = _numberings(listing, rows["train"])
            labels = listing.labels[rows["train"]]
            called = _Called(listing, features)
            said = notes(arrays["train"], labels, numberings, spread, called)
            said = (*self._not_taken(listing), *said)
        return Content(arrays, _shown(listing, features), said)

    def _not_taken(self, listing: Listing) -> tuple[str, ...]:
        """What to say of columns of text that are left out unasked; a list may be among them."""
        file = self._first_of_train(listing)
        others = (*self._others, "class")
        free = [one for one in listing.schemas[file] if one.name not in others]
        words = [one.name for one in free if pa.types.is_string(one.type)]
        if self._wanted is not None or not words:
            return ()
        first = next(iter(self._batches(file, words, 1)), None)
        values = {} if first is None else first.slice(0, 1).to_pydict()
        lists = [name for name, found in values.items() if str(*found).startswith("[")]
        if lists:
            found = f"column '{lists[0]}' has lists as text, and is left out"
            return (f"{found}: save them as parquet or npz",)
        shown = ", ".join(f"'{name}'" for name in words[:MOST_SHOWN])
        more = f" and {len(words) - MOST_SHOWN:,} more" if len(words) > MOST_SHOWN else ""
        return (f"left out, as text: {shown}{more}",)


class _Called:
    """`column 'age'`, `column 'emb[3]'`, for messages; `column 3` of an npz."""

    def __init__(self, listing: Listing, features: Sequence[Feature]) -> None:
        self._named = bool(_shown(listing, features))
        self._features = features
        self._ends = np.cumsum([feature.size for feature in features])

    def __call__(self, place: int) -> str:
        if not self._named:
            return f"column {place}"
        feature = self._features[number := int(np.searchsorted(self._ends, place, side="right"))]
        if feature.width is None:
            return f"column '{feature.name}'"
        return f"column '{feature.name}[{place - self._ends[number] + feature.size}]'"


def _shown(listing: Listing, features: Sequence[Feature]) -> tuple[str, ...]:
    """The columns' names, in order; those of an npz have none."""
    if ending_of(listing.files[0]) == ".npz":
        return ()
    return tuple(feature.shown for feature in features)


def _numberings(listing: Listing, rows: np.ndarray) -> list[np.ndarray]:
    """Numbers of these rows: in their file, from the first row of theirs, and in the split."""
    starts = listing.starts[np.searchsorted(listing.starts, rows, side="right") - 1]
    return [rows - starts, rows - starts[0], np.arange(len(rows))]


# ---- types ---------------------------------------------------------------------------------------


def _is_number(kind: Any) -> bool:
    return is_class_number(kind) or bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_list(kind: Any) -> bool:
    """A list, large_list or fixed_size_list of numbers."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_list(kind) for is_list in lists) and _is_number(kind.value_type)


def _usual(file: Path, schema: Any, others: Sequence[str]) -> list[str]:
    """Without `features`: the one column of lists, or else all of numbers, but for `others`."""
    left_out = {*others, *_indices(schema)}
    free = [field for field in schema if field.name not in left_out]
    lists = [field.name for field in free if _is_list(field.type)]
    if len(lists) > 1:
        problem = f"{file} has {len(lists):,} columns of lists: {', '.join(lists[:10])}"
        raise FieldError("features", problem, f"Name those to take, e.g. `features: {lists[0]}`.")
    found = lists or [field.name for field in free if _is_number(field.type)]
    if not found:
        kinds = ", ".join(f"{field.name} ({field.type})" for field in list(schema)[:10])
        problem = f"{file} has no column of numbers but label and split"
        raise FieldError("features", problem, f"Encode text as numbers. Its columns: {kinds}.")
    return found


def _indices(schema: Any) -> set[str]:
    """The columns that are an index saved by pandas."""
    named = (schema.pandas_metadata or {}).get("index_columns", ())
    return {name for name in schema.names if INDEX.fullmatch(name)}.union(
        name for name in named if isinstance(name, str)
    )


def _check_features(file: Path, schema: Any, names: Sequence[str], first: Any) -> None:
    """Raise FieldError unless the file has these columns, of the kinds of the first file."""
    known = set(schema.names)
    indices = _indices(schema)
    for name in names:
        if name not in known:
            check_column("features", file, name, schema.names)
        if name in indices:
            raise FieldError(
                "features", f"{file}: column '{name}' is a saved index", "Leave it out."
            )
        kind = schema.field(name).type
        if pa.types.is_string(kind) and ending_of(file) == ".csv":  # its row will be named
            continue
        if not (_is_number(kind) or _is_list(kind)):
            found = f"{file}: column '{name}' has type {kind}, not numbers or lists of numbers"
            raise FieldError("features", found, ENCODE)
        if _is_list(kind) != _is_list(first.field(name).type):
            found = f"{file}: column '{name}' has type {kind}"
            raise FieldError("features", f"{found}, in train it is {first.field(name).type}")


# ---- values --------------------------------------------------------------------------------------


def _check_memory(path: str, rows: int, columns: int) -> None:
    needed = rows * columns * np.dtype(np.float32).itemsize
    if needed > (limit := memory()):
        found = f"{rows:,} rows of {columns:,} numbers in {path} take {needed / 1e9:,.1f} GB"
        mend = "Set `limit`, or name fewer columns in `features`."
        there = f"this machine's memory has {limit / 1e9:,.1f} GB"
        raise FieldError("path", f"{found}, {there}", mend)


def _values(
    listing: Listing, rows: np.ndarray, batch: Any, features: Sequence[Feature]
) -> np.ndarray:
    """[n, D] float32 or float64: the batch's columns side by side."""
    parts = []
    for feature, column in zip(features, batch.columns, strict=True):
        numbers = _flat(listing, rows, feature, column)
        if not (pa.types.is_float32(numbers.type) or pa.types.is_float64(numbers.type)):
            numbers = pc.cast(numbers, pa.float64(), safe=False)
        parts.append(numbers.to_numpy(zero_copy_only=False).reshape(len(rows), feature.size))
    return parts[0] if len(parts) == 1 else np.hstack(parts)


def _flat(listing: Listing, rows: np.ndarray, feature: Feature, column: Any) -> Any:
    """The numbers of a column, list after list. Raises FieldError if there are not as many."""

    def refuse_gap(gaps: Any, size: int) -> None:
        if gaps.null_count:
            row = rows[pc.index(gaps.is_null(), True).as_py() // size]
            mend = "Fill it, or leave out the row or the column."
            _refuse(listing.place(row), feature.name, "a value is missing", mend)

    refuse_gap(column, 1)
    if feature.width is not None:
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        other = np.flatnonzero(lengths != feature.width)
        if len(other):
            found = f"a list of {lengths[other[0]]:,} numbers, the first has {feature.width:,}"
            mend = "All must be of one length."
            _refuse(listing.place(rows[other[0]]), feature.name, found, mend)
        column = column.flatten()
        refuse_gap(column, feature.width)
    elif pa.types.is_string(column.type):
        numbers, wrong = parsed(column)
        if wrong is not None:
            found = f"{column[wrong].as_py()!r:.80} is text, not a number"
            _refuse(listing.place(rows[wrong]), feature.name, found, ENCODE)
        column = numbers
    return column


def _check_finite(
    listing: Listing,
    rows: np.ndarray,
    values: np.ndarray,
    stored: np.ndarray,
    features: Sequence[Feature],
) -> None:
    """Raise FieldError if a value is no finite float32. stored: the values as float32."""
    if np.isfinite(stored).all():
        return
    row, place = np.argwhere(~np.isfinite(stored))[0]
    value = values[row, place]
    found = "NaN" if np.isnan(value) else "an infinite value"
    mend = "Fill it, or leave out the row or the column."
    if np.isfinite(value):
        found = f"{value:g} is beyond float32"
        mend = "Divide the column by a power of ten."
    where = f"{listing.place(rows[row])}, {_Called(listing, features)(place)}"
    raise FieldError("features", f"{where}: {found}", mend)


def _refuse(place: str, column: str, found: str, mend: str) -> None:
    raise FieldError("features", f"{place}, column '{column}': {found}", mend)
