"""Files of rows of numbers, in every format that `table` reads, written by pandas and NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainables.data.table import Table
from trainables.problems import FieldError

FORMATS = ("parquet", "csv", "npz")


def measured(**changes: Any) -> pd.DataFrame:
    """Twelve training and four test rows of two classes. A change of None drops the column."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "age": random.integers(20, 80, 16),
        "weight": random.normal(70.0, 10.0, 16),
        "y": [0, 1] * 8,
        "split": ["train"] * 12 + ["test"] * 4,
    }
    columns |= changes
    return pd.DataFrame({name: values for name, values in columns.items() if values is not None})


def save(frame: pd.DataFrame, path: Path, **options: Any) -> Path:
    """The frame in the format that the path ends with, without its index."""
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False, **options)
    elif path.suffix == ".csv":
        frame.to_csv(path, index=False, **options)
    else:
        arrays = {"features": frame.drop(columns=["y", "split"], errors="ignore").to_numpy()}
        arrays["y"] = plain(frame["y"])
        if "split" in frame:
            arrays["splits"] = plain(frame["split"])
        np.savez(path, **arrays)
    return path


def plain(column: pd.Series) -> np.ndarray:
    """Without Python objects."""
    return column.to_numpy() if column.dtype.kind in "iubf" else column.to_numpy().astype(str)


def lists(path: Path, rows: Any, kind: Any = None, **others: Any) -> Path:
    """A column `emb` of lists, and labels 0, 1, 0, ..."""
    columns = {"emb": pa.array(rows, kind), "y": [place % 2 for place in range(len(rows))]}
    pq.write_table(pa.table({**columns, **others}), path)
    return path


def table(path: Path, **options: Any) -> Table:
    return Table(**{"path": str(path), "label": "y", **options})


def error_of(path: Path, **options: Any) -> FieldError:
    with pytest.raises(FieldError) as caught:
        table(path, **options).read()
    assert "\n" not in str(caught.value)
    return caught.value
