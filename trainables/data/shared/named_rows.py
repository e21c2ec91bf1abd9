"""Shared base of data sets whose samples are rows of columns with names, in parquet or csv files;
their labels are whole numbers or words."""

import json
import re
from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from trainables.data.shared.columns import Columns, CsvColumns, ParquetColumns, what_is_taken
from trainables.data.shared.listing import Labels
from trainables.data.shared.rows import RowFiles, either
from trainables.machine import memory
from trainables.plain import Value
from trainables.problems import FieldError

WHOLE = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class NamedRows(RowFiles, ABC):
    """Rows of parquet or csv files."""

    endings: ClassVar[tuple[str, ...]] = (".parquet", ".csv")

    @property
    def _others(self) -> list[str]:
        """The columns that are no features."""
        named = (self.label, self.split_column, self.group)
        return [name for name in named if name is not None]

    def _files(self) -> list[Path]:
        files = super()._files()
        kinds = sorted({ending_of(file) for file in files})
        if kinds[0] not in self.endings:
            raise FieldError("path", f"{self.path} is no {either(self.endings)} file")
        if len(kinds) > 1:
            found = f"{self.path} has {' and '.join(kinds)} files"
            raise FieldError("path", found, "Keep those of one kind.")
        return files

    def _columns(self, file: Path) -> Columns:
        if ending_of(file) == ".parquet":
            return ParquetColumns(file, memory())
        return CsvColumns(file, memory(), text=self._others)

    def _schema(self, file: Path) -> Any:
        return self._columns(file).schema()

    def _read(self, file: Path, columns: list[str]) -> Any:
        return self._columns(file).read(columns)

    def _batches(self, file: Path, columns: list[str], size: int) -> Iterator[Any]:
        return self._columns(file).batches(columns, size)

    def _check_schema(self, file: Path, schema: Any) -> None:
        seen: set[str] = set()
        for name in schema.names:
            if name in seen:
                raise FieldError("path", f"{file} has two columns named '{name}'", "Rename one.")
            seen.add(name)
        super()._check_schema(file, schema)
        kind = schema.field(self.label).type
        if not (is_class_number(kind) or pa.types.is_string(kind)):
            found = f"{file}: column '{self.label}' has type {kind}"
            mend = f"Write whole numbers, or words. {what_is_taken(kind)}".rstrip()
            raise FieldError("label", f"{found}, not whole numbers or words", mend)

    def _matches(self, file: Path, found: Any, value: Value) -> bool:
        """A csv has text: `where: {group: 3}` are the rows with a 3, as it is written."""
        if ending_of(file) != ".csv" or found is None or isinstance(value, str):
            return super()._matches(file, found, value)
        return bool(found.lower() == json.dumps(value))

    # ---- labels ----------------------------------------------------------------------------------

    def _numbered(self, schemas: dict[Path, Any], columns: list[Any], splits: np.ndarray) -> Labels:
        """Words are numbered in sorted order, those of train first; whole numbers stay as they
        are."""
        if all(is_class_number(column.type) for column in columns):
            numbers = [column.cast(pa.int64(), safe=False) for column in columns]
            return super()._numbered(schemas, numbers, splits)
        found = pa.concat_arrays([column.cast(pa.large_string()) for column in columns])
        found = found.dictionary_encode()
        words = found.dictionary.to_pylist()
        places = found.indices.to_numpy()
        if all(map(WHOLE.fullmatch, words)):
            ours = np.array(list(map(int, words)), dtype=np.int64)[places]
            return super()._numbered(schemas, [pa.array(ours)], splits)
        for word in words:
            if word != (bare := word.strip()) and bare in words:
                found = f"'{word}' and '{bare}' differ by spaces alone"
                raise FieldError("label", f"{self.path}: {found}", "Make them one.")
        train = self._called("train", sorted(set(splits.tolist())))
        in_train = set(places[splits == train].tolist())
        order = sorted(range(len(words)), key=lambda place: (place not in in_train, words[place]))
        return Labels(np.argsort(order)[places], [words[place] for place in order], words=True)


def ending_of(file: Path) -> str:
    return file.suffix.lower()


def is_class_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))
