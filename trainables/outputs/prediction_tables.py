"""Predictions of any model from the columns of a csv or parquet file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trainables.data.shared.columns import Columns, CsvColumns, ParquetColumns, parsed, whole
from trainables.data.shared.groups import group_column
from trainables.machine import memory
from trainables.problems import FieldError

WANTED = "Give `label`, and `logit_0`, `logit_1`, ... or `prob_0`, `prob_1`, ..."
LABEL = "label"
GROUP = "group"
FILL = "Fill it, or remove the row."
SHOWN = 12  # of the file's columns, in a message


def table_arrays(path: Path, labelled: bool = True) -> dict[str, np.ndarray]:
    """`logits` or `probs` [N, K], `labels` if labelled, and `groups` if there are any, as an npz
    has them. Raises FieldError naming all that the file lacks."""
    try:
        return _arrays(path, labelled)
    except FieldError as error:
        raise error.at(str(path)) from None


def table_has_groups(path: Path) -> bool:
    return GROUP in _columns(path).schema().names


def _arrays(path: Path, labelled: bool) -> dict[str, np.ndarray]:
    columns = _columns(path)
    names = columns.schema().names
    kind = max(("logit", "prob"), key=lambda one: len(_numbers_in(one, names)))
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
    found = {f"{kind}s": np.column_stack([_numbers(path, table, name) for name in scores])}
    if labelled:
        found["labels"] = _numbers(path, table, LABEL)
    if GROUP in others:
        groups = group_column(path, table.column(GROUP), FILL)
        is_text = not pa.types.is_integer(groups.type)
        found["groups"] = np.array(groups.to_pylist(), dtype=str if is_text else np.int64)
    return found


def _columns(path: Path) -> Columns:
    if path.suffix.lower() == ".parquet":
        return ParquetColumns(path, memory())
    return CsvColumns(path, memory(), text=[GROUP])


def _numbers_in(kind: str, names: Sequence[str]) -> list[int]:
    """The classes whose columns the file names."""
    found = (re.fullmatch(rf"{kind}_(\d{{1,6}})", name) for name in names)
    return [int(one[1]) for one in found if one]


def _numbers(path: Path, table: Any, name: str) -> np.ndarray:
    """A column [N] of numbers. Raises FieldError."""
    column = whole("", f"value of '{name}'", FILL, path, table.column(name))
    if pa.types.is_string(column.type):
        numbers, wrong = parsed(column)
        if wrong is not None:
            found = f"row {wrong}: '{name}' is {column[wrong].as_py()!r}, no number"
            raise FieldError("", found, "Write numbers; a label is the number of a class, from 0.")
        column = numbers
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise FieldError("", f"'{name}' is {column.type}, not numbers", "Write numbers.")
    return np.asarray(column.to_numpy(zero_copy_only=False))
