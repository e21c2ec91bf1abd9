"""Columns of parquet, csv and npz files, read by name as Arrow tables.

Only what is asked for is read; pyarrow's and NumPy's errors become a FieldError.
"""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from trainables.files.arrays import array_headers, read_arrays
from trainables.files.data_files import open_data_file
from trainables.files.regular import open_regular
from trainables.problems import MOST_LISTED, FieldError, nearest

# The memory for a row, its sample aside; a few bytes of a file may claim any number of rows.
ROW_BYTES = 128
# Bytes that a column of a row group may unpack to, and above them how many times its size.
MOST_UNPACKED = 256 * 2**20
MOST_TIMES = 100
BLOCK = 8 * 2**20  # bytes of a csv that are read at a time
MOST_HEADER = 16 * 2**20  # bytes of the first line of a csv
HEADERS = 16  # a row of a csv may take as many times the bytes of its header, or a block
SNIFFED = 1000  # rows of a csv that say whether a column holds numbers
NUMBER = r"^([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:nan|[+-]?inf|[+-]?infinity))$"
TRUTH = r"^(?i:true|false)$"
MOST_NAMES = 1000  # compared with a misspelt one
LONGEST_MEND = 400  # characters; a table may have any number of columns
ARRAYS = "an npz with `features` [N, D] of numbers, `labels` [N] and, if there are any, `splits`"


class Columns(ABC):
    """The columns of a file."""

    def __init__(self, file: Path, memory: int) -> None:
        self.file = file
        self.memory = memory

    @abstractmethod
    def schema(self) -> Any:
        """The Arrow schema, with numbers and text as they are stored."""

    @abstractmethod
    def read(self, names: list[str]) -> Any:
        """These columns, an Arrow table."""

    @abstractmethod
    def batches(self, names: list[str], size: int) -> Generator[Any, None, None]:
        """These columns, a record batch of at most `size` rows at a time."""


# ---- parquet -------------------------------------------------------------------------------------


class ParquetColumns(Columns):
    """Columns of categories hold their values."""

    def schema(self) -> Any:
        with opened_parquet(self.file, self.memory) as source:
            return _plain(source.schema_arrow)

    def read(self, names: list[str]) -> Any:
        with opened_parquet(self.file, self.memory) as source:
            return _decoded(source.read(names))

    def batches(self, names: list[str], size: int) -> Generator[Any, None, None]:
        with opened_parquet(self.file, self.memory) as source:
            for batch in source.iter_batches(size, columns=names):
                # In the order of `names`, not of the file.
                yield _decoded(batch.select(names))


def _plain(schema: Any) -> Any:
    """The schema with each dictionary replaced by its values, and one type of text."""
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            kind = pa.string()
        fields.append(field.with_type(kind))
    return pa.schema(fields, schema.metadata)


def _decoded(table: Any) -> Any:
    return table.cast(_plain(table.schema))


@contextmanager
def opened_parquet(file: Path, memory: int) -> Iterator[Any]:
    """The parquet file. Raises FieldError if it is none, or `memory` bytes cannot hold it."""
    open_data_file("path", file).close()
    try:
        with pq.ParquetFile(file) as source:
            _check_footer(file, source.metadata, memory)
            yield source
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        mend = ""
        if "lists to be of size" in reason:  # pyarrow cannot read such a row
            mend = "A list of fixed size is missing: fill it, or remove its row."
        raise FieldError("path", f"{file} cannot be read as parquet: {reason}", mend) from None


def _check_footer(file: Path, footer: Any, limit: int) -> None:
    """Raise FieldError if memory cannot hold a row group, of which pyarrow reads whole columns."""
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
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            unpacked = column.total_uncompressed_size
            if unpacked > max(MOST_UNPACKED, MOST_TIMES * column.total_compressed_size):
                found = f"column '{column.path_in_schema}' of {file} unpacks to"
                times = f"{unpacked / max(column.total_compressed_size, 1):,.0f} times its size"
                raise FieldError(
                    "path",
                    f"{found} {unpacked / 1e9:,.1f} GB, {times}",
                    "Write smaller row groups.",
                )


# ---- csv -----------------------------------------------------------------------------------------


class CsvColumns(Columns):
    """UTF-8, commas and a header. All is read as text; of that only an empty field is missing.

    text: columns that hold no numbers, whatever they look like.
    """

    def __init__(self, file: Path, memory: int, text: Collection[str]) -> None:
        super().__init__(file, memory)
        self.text = text

    def schema(self) -> Any:
        """A column is of numbers if one of its first values is, or all of them are missing."""
        names = self._names()
        text = set(self.text)
        if len(set(names)) == len(names):  # else pyarrow would read the first of each
            with closing(self.batches(names, 0)) as batches:
                head = next(batches, None)
            text.update(name for name in names if head is not None and _is_text(head.column(name)))
        return pa.schema([(name, pa.string() if name in text else pa.float64()) for name in names])

    def read(self, names: list[str]) -> Any:
        schema = pa.schema([(name, pa.string()) for name in names])
        return pa.Table.from_batches(self.batches(names, 0), schema)

    def batches(self, names: list[str], size: int) -> Generator[Any, None, None]:
        """Batches of text, of some megabytes whatever the `size`."""
        with self._told() as wrong, self._opened(wrong, names) as stream:
            yield from stream

    def _names(self) -> list[str]:
        with self._told() as wrong:
            self._check_separator()
            with self._opened(wrong) as stream:
                return list(stream.schema.names)

    def _check_separator(self) -> None:
        header = self._header()
        for separator in (b";", b"\t"):
            if separator in header and b"," not in header:
                found = f"{self.file}: its header has no comma, but {separator.decode()!r}"
                raise FieldError("path", found, "Save it with commas between fields.")

    def _header(self) -> bytes:
        """The first line. Raises FieldError for one that is too long."""
        with open_data_file("path", self.file) as file:
            header = file.readline(MOST_HEADER + 1)
        if len(header) > MOST_HEADER:
            found = f"{self.file} has a header of more than {MOST_HEADER / 2**20:g} MB"
            raise FieldError("path", found, "Its first line names the columns.")
        return header

    def _opened(self, wrong: list[Any], names: list[str] | None = None) -> Any:
        """A stream of record batches. wrong: gets the row with another number of fields."""

        def refuse(row: Any) -> str:
            wrong.append(row)
            return "error"

        header = len(self._header())
        return pyarrow.csv.open_csv(
            self.file,
            # By one thread: rows are counted.
            pyarrow.csv.ReadOptions(use_threads=False, block_size=max(BLOCK, HEADERS * header)),
            pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
            pyarrow.csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names or (), pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )

    @contextmanager
    def _told(self) -> Iterator[list[Any]]:
        """A place for a row with another number of fields; errors become a FieldError."""
        wrong: list[Any] = []
        try:
            yield wrong
        except (pa.ArrowException, UnicodeError, OSError) as error:
            raise FieldError("path", *self._problem(str(error), wrong)) from None

    def _problem(self, reason: str, wrong: list[Any]) -> tuple[str, str]:
        """What was found, and the mend."""
        if line := self._other_text():
            return f"{self.file}, line {line} is not UTF-8", "Save it as UTF-8."
        if wrong:
            # pyarrow counts from 1, and the header too.
            row = f"{self.file}, row {wrong[0].number - 2}"
            found = f"{wrong[0].actual_columns} fields, the header has {wrong[0].expected_columns}"
            mend = "Mend the row; a field with a comma or a quote is written in quotes."
            return f"{row}: {found}", mend
        if "Empty CSV" in reason:
            mend = "Its first line names the columns, each further line is a row."
            return f"{self.file} has no rows", mend
        if "straddling" in reason:
            mend = "Look for a quote that is not closed."
            return f"{self.file} has a row of many megabytes", mend
        return f"{self.file} cannot be read as csv: {reason.partition(chr(10))[0]}", ""

    def _other_text(self) -> int | None:
        """The first line that is not UTF-8, from 1."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        lines = 1
        with suppress(OSError), open_regular(self.file) as file:
            while part := file.read(BLOCK):
                try:
                    decoder.decode(part)
                except UnicodeDecodeError as error:
                    return lines + error.object.count(b"\n", 0, error.start)
                lines += part.count(b"\n")
        return None


# ---- npz -----------------------------------------------------------------------------------------


class NpzColumns(Columns):
    """arrays: the array of each column. features: the column of rows of numbers. required: the
    option of each column that must be there."""

    def __init__(
        self,
        file: Path,
        memory: int,
        arrays: Mapping[str, str],
        features: str,
        required: Mapping[str, str],
    ) -> None:
        super().__init__(file, memory)
        self.arrays = arrays
        self.features = features
        self.required = required

    def schema(self) -> Any:
        headers = self._asked(array_headers, self.file, ARRAYS)
        for name, (_, dtype) in headers.items():
            if name in self.arrays.values() and dtype.hasobject:
                found = f"{self.file}: '{name}' holds Python objects"
                raise FieldError(
                    "path", found, "Save text with `.astype(str)`, numbers as numbers."
                )
        known = {name: headers[array] for name, array in self.arrays.items() if array in headers}
        for name, array in self.arrays.items():
            if name not in known and name in self.required:
                found = f"{self.file} has no array '{array}'"
                mend = f"It has {', '.join(headers) or 'none'}. Give {ARRAYS}."
                if (option := self.required[name]) == "group":
                    mend = nearest(array, headers)
                raise FieldError(option, found, mend)
        shape, dtype = known[self.features]
        if dtype.kind not in "fiub" or len(shape) != 2 or not shape[1]:
            found = f"'{self.arrays[self.features]}' is {dtype} {list(shape)}"
            raise FieldError("features", f"{self.file}: {found}, not numbers [N, D]")
        for name, (others, of) in known.items():
            if name != self.features and others != shape[:1]:
                found = f"{self.file}: '{self.arrays[name]}' is {of} {list(others)}"
                rows = f"'{self.arrays[self.features]}' has {shape[0]:,} rows"
                raise FieldError("path", f"{found}, but {rows}", "Give one value for each row.")
        kinds = [(name, _kind(of)) for name, (_, of) in known.items() if name != self.features]
        return pa.schema([(self.features, pa.list_(pa.float32(), shape[1])), *kinds])

    def read(self, names: list[str]) -> Any:
        found = self._arrays(names)
        return pa.table({name: _column(found[name]) for name in names})

    def batches(self, names: list[str], size: int) -> Generator[Any, None, None]:
        values = self._arrays([self.features])[self.features]
        for start in range(0, len(values), size):
            yield pa.record_batch({self.features: _column(values[start : start + size])})

    def _arrays(self, names: list[str]) -> dict[str, np.ndarray]:
        wanted = {self.arrays[name]: name for name in names}
        found = self._asked(read_arrays, self.file, ARRAYS, wanted, dict.fromkeys(wanted, 4))
        arrays = {wanted[array]: value for array, value in found.items()}
        # pyarrow takes numbers in this machine's order of bytes.
        return {
            name: value.astype(value.dtype.newbyteorder("="), copy=False)
            for name, value in arrays.items()
        }

    def _asked(self, function: Any, *given: Any) -> Any:
        try:
            return function(*given)
        except FieldError as error:
            raise FieldError("path", f"{self.file} {error.found}", error.mend) from None


def _column(values: np.ndarray) -> Any:
    """The Arrow array, of lists if there are rows of numbers."""
    if values.ndim == 1:
        return pa.array(values)
    if values.dtype != np.float32:
        values = values.astype(np.float64)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _kind(dtype: np.dtype[Any]) -> Any:
    """The Arrow type of an array of labels or splits; null: of none that we read."""
    if dtype.kind == "U":
        return pa.string()
    return pa.from_numpy_dtype(dtype) if dtype.kind in "iubf" else pa.null()


def _is_text(column: Any) -> bool:
    """Whether all the first values of a column are text."""
    values = column.slice(0, SNIFFED).drop_null()
    try:
        pc.cast(values, pa.float64())
    except pa.ArrowInvalid:
        numbers = pc.match_substring_regex(pc.utf8_trim_whitespace(values), f"{NUMBER}|{TRUTH}")
        return not pc.any(numbers).as_py()
    return False


def parsed(column: Any) -> tuple[Any, int | None]:
    """Text without gaps as Arrow numbers, and the first place that holds none.

    true and false are 1 and 0.
    """
    try:
        return pc.cast(column, pa.float64()), None
    except pa.ArrowInvalid:
        text = pc.utf8_trim_whitespace(column)
    truth = pc.match_substring_regex(text, TRUTH)
    text = pc.if_else(truth, pc.if_else(pc.equal(pc.utf8_lower(text), "true"), "1", "0"), text)
    wrong = pc.index(pc.match_substring_regex(text, NUMBER), False).as_py()
    return (None, wrong) if wrong >= 0 else (pc.cast(text, pa.float64()), None)


def check_column(option: str, file: Path, column: str, names: list[str]) -> None:
    """Raise FieldError, with the nearest name, if the file has no such column."""
    if column in names:
        return
    mend = nearest(column, names[:MOST_NAMES])
    if "Valid values" in mend and (len(names) > MOST_LISTED or len(mend) > LONGEST_MEND):
        mend = f"{len(names):,} columns, the first are {', '.join(names[:10])}."
    raise FieldError(option, f"{file} has no column '{column}'", mend)


def whole(option: str, what: str, mend: str, file: Path, column: Any) -> Any:
    """The column in one piece. Raises FieldError if a value is missing."""
    column = column.combine_chunks()
    if column.null_count:
        row = pc.index(column.is_null(), True)
        raise FieldError(option, f"{file}, row {row}: the {what} is missing", mend)
    return column


def what_is_taken(kind: Any) -> str:
    """The sentence about labels that calstudy does not take, by their column's type."""
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "calstudy takes classes, not numbers to predict (regression)."
    if pa.types.is_nested(kind):
        return "calstudy takes one class an image, or a mask; not several labels, nor boxes."
    return ""
