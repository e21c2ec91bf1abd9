"""Predictions of any model from the columns of a csv or parquet file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from trainables.data.shared.columns import Columns, CsvColumns, ParquetColumns, whole
from trainables.data.shared.groups import group_column
from trainables.files.nearest_file import nearest_file
from trainables.machine import memory
from trainables.outputs.array_checks import (
    class_numbers,
    finite,
    numbers_in,
    numbers_of,
    refuse_negative,
)
from trainables.problems import FieldError

WANTED = "Give `label`, and `logit_0`, `logit_1`, ... or `prob_0`, `prob_1`, ..."
LABEL = "label"
GROUP = "group"
KINDS = ("logit", "prob")
ENDINGS = (".csv", ".parquet", ".npz")
FILL = "Fill it, or remove the row."
T = TypeVar("T")
SHOWN = 12  # of the file's columns, in a message


def table_arrays(path: Path, labelled: bool = True) -> dict[str, np.ndarray]:
    """`logits` or `probs` [N, K], `labels` if labelled, and `groups` if there are any, as an npz
    has them, all checked. Raises FieldError naming all that the file lacks, or the first row that
    is wrong."""
    return told(path, lambda: _arrays(path, labelled))


def table_has_groups(path: Path) -> bool:
    return told(path, lambda: GROUP in open_columns(path).schema().names)


def told(path: Path, read: Callable[[], T]) -> T:
    """What is read; an error says the file once."""
    if not path.exists():
        raise FieldError(str(path), "there is no such file", nearest_file(path, ENDINGS))
    try:
        return read()
    except FieldError as error:
        is_said = error.found.startswith(str(path))
        raise error.at("" if is_said else str(path)) from None


def _arrays(path: Path, labelled: bool) -> dict[str, np.ndarray]:
    columns = open_columns(path)
    names = columns.schema().names
    kinds = [kind for kind in KINDS if _numbers_in(kind, names)]
    if len(kinds) > 1:
        found = "has columns of logits ('logit_0', ...) and of probabilities ('prob_0', ...)"
        raise FieldError("", found, "Leave one kind out.")
    kind = kinds[0] if kinds else "logit"
    scores = [f"{kind}_{number}" for number in range(max(_numbers_in(kind, names), default=-1) + 1)]
    lacking = [] if scores else ["no columns 'logit_0', ... or 'prob_0', ..."]
    lacking += [f"no column '{name}'" for name in scores if name not in names]
    if labelled and LABEL not in names:
        lacking.append(f"no column '{LABEL}'")
    if lacking:
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        has = f"It has {', '.join(names[:SHOWN])}{more}."
        raise FieldError("", f"has {', and '.join(lacking)}", f"{has} {WANTED}")
    others = [name for name in (LABEL, GROUP) if name in names]
    table = columns.read([*scores, *others])
    if not table.num_rows:
        raise FieldError("", "has no rows", "Give each sample a row.")
    if len(scores) < 2:
        found = f"has one class, '{scores[0]}'"
        raise FieldError("", found, f"Give two or more: '{kind}_0', '{kind}_1', ...")
    values = np.column_stack([column_of_numbers(path, table, name) for name in scores])
    values = finite(values, called=lambda number: f"'{scores[number]}'")
    _check_scores(values, scores)
    arrays = {f"{kind}s": values}
    if labelled:
        labels = column_of_numbers(path, table, LABEL)
        arrays["labels"] = class_numbers(labels, len(scores), f"'{LABEL}'")
    if GROUP in others:
        groups = group_column(path, table.column(GROUP), FILL)
        is_text = not pa.types.is_integer(groups.type)
        arrays["groups"] = np.array(groups.to_pylist(), dtype=str if is_text else np.int64)
    return arrays


def _check_scores(scores: np.ndarray, names: Sequence[str]) -> None:
    """Raise FieldError for the first row of probabilities that has one below 0, or percentages."""
    if names[0] == "prob_0":
        mend = "If they are logits, name the columns 'logit_0', 'logit_1', ..."
        refuse_negative(scores, lambda number: f"'{names[number]}'", mend)


def open_columns(path: Path) -> Columns:
    """The columns of a csv or parquet file."""
    if path.suffix.lower() == ".parquet":
        return ParquetColumns(path, memory())
    return CsvColumns(path, memory(), text=[GROUP])


def _numbers_in(kind: str, names: Sequence[str]) -> list[int]:
    """The classes whose columns the file names."""
    found = (re.fullmatch(rf"{kind}_(\d{{1,6}})", name) for name in names)
    return [int(one[1]) for one in found if one]


def column_of_numbers(path: Path, table: Any, name: str) -> np.ndarray:
    """A column [N] of numbers. Raises FieldError."""
    column = whole("", f"value of '{name}'", FILL, path, table.column(name))
    if pa.types.is_string(column.type):
        return numbers_in(column, called=lambda _: f"'{name}'")
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    if values.dtype.kind not in "biuf":
        raise FieldError("", f"'{name}' is {column.type}, not numbers", "Write numbers.")
    return numbers_of(values, called=lambda _: f"'{name}'")
