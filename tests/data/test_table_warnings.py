"""What `plan` and `run` say of a table before anybody trains on it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from trainables.data.parquet import Parquet
from trainables.data.table import Table
from trainables.loading.cache import prepare
from trainables.problems import FieldError


def columns(rows: int = 60, width: int = 16) -> pd.DataFrame:
    values = np.random.default_rng(0).normal(size=(rows, width))
    table = pd.DataFrame(values).add_prefix("f")
    return table.assign(label=np.arange(rows) % 3)


def write(table: pd.DataFrame, file: Path) -> None:
    if file.suffix == ".csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file, index=False)


def notes_of(table: pd.DataFrame, file: Path, **options: object) -> tuple[str, ...]:
    write(table, file)
    return Table(path=str(file), **options).read().notes


def test_rows_of_unknown_splits_are_counted(tmp_path: Path) -> None:
    table = columns().assign(split=["train"] * 30 + ["dev"] * 18 + ["holdout"] * 12)
    said = "12 rows are left out: their split is holdout; used are {train: train, test: dev}"
    file = tmp_path / "a.parquet"
    assert notes_of(table, file) == (f"{said}, `splits` names others",)
    named = {"train": "train", "validation": "dev", "test": "holdout"}
    assert notes_of(table, file, splits=named) == ()
    assert notes_of(table, file, splits={"train": "train"}) == ()  # asked for


def test_copies_of_rows_are_counted(tmp_path: Path) -> None:
    table = columns()
    file = tmp_path / "a.parquet"
    write(pd.concat([table, table.head(20)]), file)
    found = prepare(Table(path=str(file)), 0, tmp_path / "cache")
    said = "20 of 80 rows of train are copies of others, and stay in one split with them"
    assert found.notes[0] == said


def test_text_that_is_left_out_is_named(tmp_path: Path) -> None:
    table = columns().assign(place="a ward", doctor="a name")
    for name in ("a.parquet", "a.csv"):
        assert notes_of(table, tmp_path / name) == ("left out, as text: 'place', 'doctor'",)
    chosen = [f"f{place}" for place in range(16)]
    assert notes_of(table, tmp_path / "a.csv", features=chosen) == ()


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_first_file_without_rows_hides_no_text(tmp_path: Path, ending: str) -> None:
    """`dev` comes before `train`, and is not used."""
    table = columns().assign(place="a ward")
    for name, rows in (("dev", 0), ("train", 60)):
        write(table.head(rows), tmp_path / f"{name}{ending}")
    write(table.head(30), tmp_path / f"test{ending}")
    found = Table(path=str(tmp_path), splits={"train": "train", "test": "test"}).read()
    assert "left out, as text: 'place'" in found.notes


def test_lists_as_text_are_said(tmp_path: Path) -> None:
    table = columns(width=2).assign(embedding="[0.1, 0.2]")
    (said,) = notes_of(table, tmp_path / "a.csv")
    assert said == (
        "column 'embedding' has lists as text, and is left out: save them as parquet or npz"
    )


@pytest.mark.parametrize("separator", [";", "\t"])
def test_another_separator_is_named(tmp_path: Path, separator: str) -> None:
    columns().to_csv(tmp_path / "a.csv", index=False, sep=separator, decimal=",")
    with pytest.raises(FieldError, match=r"header has no comma, but .* Save it with commas"):
        Table(path=str(tmp_path / "a.csv")).read()


def test_labels_that_differ_by_spaces_alone_are_refused(tmp_path: Path) -> None:
    words = columns().assign(label=["yes", "no", "no "] * 20)
    words.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(FieldError, match="'no ' and 'no' differ by spaces alone"):
        Table(path=str(tmp_path / "a.csv")).read()


def test_a_parquet_file_without_images_is_a_table(tmp_path: Path) -> None:
    columns().to_parquet(tmp_path / "a.parquet")
    with pytest.raises(FieldError, match=r"no column of images. For rows .* `name: table`"):
        Parquet(path=str(tmp_path / "a.parquet")).read()
