"""What is said of tables that cannot be used: one line, with file, row and column."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.bombs import npy_of
from tests.data.tables import FORMATS, error_of, lists, measured, save, table
from trainables.loading.cache import prepare
from trainables.problems import FieldError

BOTH = pytest.mark.parametrize("ending", ["parquet", "csv"])


def names(error: FieldError, path: str, *words: object) -> str:
    """What an error says of that field; each of these words is in it."""
    assert error.path == path
    for word in words:
        assert re.search(rf"(?<!\w){re.escape(str(word))}(?!\w)", error.problem), word
    return error.problem


# ---- values --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("value", [None, np.inf, -np.inf, 1e39])
def test_a_value_that_is_no_number(tmp_path, approved, ending, value):
    weight = [2.5] * 13 + [value, 1.0, value]
    path = save(measured(weight=weight), tmp_path / f"a.{ending}")
    found = "1e+39" if value == 1e39 else ""
    approved(names(error_of(path), "features", path, "row 13", "'weight'", found))


def test_nan_is_no_number(tmp_path, approved):
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n1,2,0\n3,NaN,1\n")
    approved(names(error_of(path), "features", path, "row 1", "'b'"))
    path = path.with_suffix(".parquet")
    column = pa.array([1.0, np.nan, 2.0])
    pq.write_table(pa.table({"a": column, "y": [0, 1, 0]}), path)
    approved(names(error_of(path), "features", path, "row 1", "'a'"))
    path = path.with_suffix(".npz")
    values = np.array([[1.0, 2.0], [3.0, np.nan]])
    np.savez(path, features=values, y=np.array([0, 1]))
    approved(names(error_of(path), "features", path, "row 1", "column 1"))


@pytest.mark.parametrize("word", ["n/a", "1,5", "?", "1_000", "0x1F", "-", "1.2.3"])
def test_text_among_the_numbers_of_a_csv(tmp_path, approved, word):
    weight = ["2.5"] * 13 + [word, "1.0", "true"]
    path = save(measured(weight=weight), tmp_path / "a.csv")
    said = names(error_of(path), "features", path, "row 13", "'weight'", f"'{word}'")
    approved(said, word=f"'{word}'")


@pytest.mark.parametrize("ending", ["parquet", "csv", "npz"])
@pytest.mark.parametrize("blank", ["", " "])
def test_a_split_without_a_name(tmp_path, ending, blank):
    split = ["train"] * 12 + ["test", blank, "test", blank]
    path = save(measured(split=split), tmp_path / f"a.{ending}")
    names(error_of(path), "split_column", path, "row 13")


@BOTH
def test_text_that_is_named(tmp_path, approved, ending):
    path = save(measured(city=["Bern", "Rome"] * 8), tmp_path / f"a.{ending}")
    error = error_of(path, features=["age", "city"])
    where = ["string"] if ending == "parquet" else ["row 0", "'Bern'"]
    approved(names(error, "features", path, "'city'", *where))


def test_rows_are_counted_in_their_own_file(tmp_path):
    frame = measured(split=None)
    save(frame, tmp_path / "test.csv")
    frame.loc[5, "weight"] = np.nan
    save(frame, tmp_path / "train.csv")
    assert f"{tmp_path / 'train.csv'}, row 5, column 'weight'" in error_of(tmp_path).problem


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64())], ids=str)
def test_lists_of_differing_length(tmp_path, approved, kind):
    path = lists(tmp_path / "a.parquet", [[1, 2], [3, 4], [5], [6, 7, 8]], kind)
    there = ("row 2", "'emb'", "1 numbers", "has 2")
    approved(names(error_of(path), "features", path, *there))


@pytest.mark.parametrize(
    ("rows", "row", "column"),
    [
        ([[1.0], None, [2.0], [3.0]], 1, "emb"),
        ([[1.0], [None], [2.0], [3.0]], 1, "emb"),
        ([None, [1.0]], 0, "emb"),
        ([[], [1.0]], 0, "emb"),
        ([[1.0, 2.0], [1.0, np.nan]], 1, "emb[1]"),
    ],
    ids=["no list", "no value", "no first list", "an empty list", "nan"],
)
def test_gaps_in_lists(tmp_path, approved, rows, row, column):
    path = lists(tmp_path / "a.parquet", rows)
    approved(names(error_of(path), "features", path, f"row {row}", f"'{column}'"))


def test_a_gap_in_lists_of_fixed_size(tmp_path, approved):
    """pyarrow writes it and does not read it again."""
    path = lists(tmp_path / "a.parquet", [[1.0], None], pa.list_(pa.float64(), 1))
    error = error_of(path)
    said, _, rest = names(error, "path", path).partition(": Expected all lists")
    assert rest  # pyarrow's
    approved(f"{said}\n{error.mend}")


# ---- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "path", "word"),
    [
        ({"features": ["age", "y"]}, "features", "'y'"),
        ({"features": "split"}, "features", "'split'"),
        ({"features": ["age", "age"]}, "features", "'age'"),
        ({"features": []}, "features", "[]"),
        ({"features": ["age", 3]}, "features", "['age', 3]"),
        ({"features": 3}, "features", "got 3"),
        ({"limit": 1}, "limit", "1 is too few for 2 classes"),
    ],
    ids=str,
)
@BOTH
def test_bad_option(tmp_path, approved, ending, options, path, word):
    error = error_of(save(measured(), tmp_path / f"a.{ending}"), **options)
    approved(names(error, path, word))


@pytest.mark.parametrize(
    ("options", "path", "said"),
    [
        (
            {"features": ["age", "wieght"]},
            "features",
            "has no column 'wieght'. Did you mean 'weight'?",
        ),
        ({"label": "yy"}, "label", "has no column 'yy'. Did you mean 'y'?"),
        ({"split_column": "splt"}, "split_column", "has no column 'splt'. Did you mean 'split'?"),
        ({"splits": {"train": "trian"}}, "splits", "has no split 'trian'. Did you mean 'train'?"),
    ],
)
@BOTH
def test_a_misspelt_option(tmp_path, ending, options, path, said):
    error = error_of(save(measured(), tmp_path / f"a.{ending}"), **options)
    assert error.path == path
    assert error.problem.removeprefix(f"{tmp_path / f'a.{ending}'} ") == said


def test_of_many_columns_a_few_are_named(tmp_path, approved):
    columns = {f"column_{place}": [1.0, 2.0] for place in range(3000)}
    pq.write_table(pa.table({**columns, "y": [0, 1]}), tmp_path / "a.parquet")
    problem = error_of(tmp_path / "a.parquet", features="age").problem
    assert "'age'" in problem and "3,001 columns" in problem
    assert "column_0, column_1," in problem and len(problem) < 400
    approved(problem)


@BOTH
def test_no_column_of_numbers(tmp_path, approved, ending):
    path = save(measured(age=None, weight=["a", "b"] * 8), tmp_path / f"a.{ending}")
    approved(names(error_of(path), "features", path, "weight (string), y"))


def test_two_columns_of_lists_must_be_named(tmp_path, approved):
    path = lists(tmp_path / "a.parquet", [[1.0]] * 4, more=[[2.0]] * 4)
    approved(names(error_of(path), "features", path, "2 columns", "emb, more", "`features: emb`"))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[[1.0]]] * 4, "list<element: list<element: double>>"),
        ([["a"]] * 4, "list<element: string>"),
    ],
)
def test_lists_of_no_numbers(tmp_path, approved, values, kind):
    path = lists(tmp_path / "a.parquet", values)
    error = error_of(path, features="emb")
    approved(names(error, "features", path, "'emb'", kind), kind=kind)


@BOTH
def test_a_saved_index_cannot_be_named(tmp_path, approved, ending):
    name = "__index_level_0__" if ending == "parquet" else "Unnamed: 0"
    path = save(measured(**{name: range(16)}), tmp_path / f"a.{ending}")
    error = error_of(path, features=[name, "age"])
    approved(names(error, "features", path, f"'{name}'"))


@BOTH
def test_a_file_without_one_of_the_columns(tmp_path, ending):
    save(measured(split=None), tmp_path / f"train.{ending}")
    save(measured(split=None).rename(columns={"weight": "wieght"}), tmp_path / f"test.{ending}")
    error = error_of(tmp_path)
    there = tmp_path / f"test.{ending}"
    assert error.path == "features"
    assert error.problem == f"{there} has no column 'weight'. Did you mean 'wieght'?"


def test_a_file_with_another_kind_of_column(tmp_path, approved):
    lists(tmp_path / "train.parquet", [[1.0]] * 4)
    test = lists(tmp_path / "test.parquet", [1.0] * 4)
    approved(names(error_of(tmp_path), "features", test, "'emb'", "double", "list"))
    lists(test, [[1.0, 2.0]] * 4)
    there = ("row 0", "'emb'", "2 numbers", "has 1")
    approved(names(error_of(tmp_path), "features", test, *there))


def test_two_columns_of_one_name(tmp_path, approved):
    (tmp_path / "a.csv").write_text("a,b,a,y\n1,2,3,0\n")
    found = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0]), pa.array([0])], ["a", "a", "y"])
    pq.write_table(found, tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        path = tmp_path / name
        approved(names(error_of(path), "path", path, "'a'"))


# ---- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", "b"] * 7 + ["a", "c"], ["row 15", "'c' in test"]),
        (["a"] * 16, ["'a'"]),
        ([0, 1] * 7 + [0, -1], ["row 15", "is -1", "start at 0"]),
    ],
    ids=["in test alone", "one class", "below 0"],
)
@pytest.mark.parametrize("ending", FORMATS)
def test_bad_labels(tmp_path, approved, ending, labels, words):
    error = error_of(save(measured(y=labels), tmp_path / f"a.{ending}"))
    approved(names(error, "label", *words))


@pytest.mark.parametrize("ending", ["parquet", "npz"])
def test_labels_of_another_type(tmp_path, approved, ending):
    path = save(measured(y=[0.0, 1.0] * 8), tmp_path / f"a.{ending}")
    approved(names(error_of(path), "label", path, "'y'", "double"))


@pytest.mark.parametrize("ending", FORMATS)
def test_a_label_with_one_sample(tmp_path, approved, ending):
    frame = measured(y=["cat"] * 8 + ["dog"] * 7 + ["emu"], split=None)
    data = table(save(frame, tmp_path / f"a.{ending}"))
    with pytest.raises(FieldError, match=r"'emu'.* train has 1\b") as caught:
        prepare(data, 0, tmp_path / "cache")
    approved(str(caught.value))


# ---- csv -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "row", "fields"),
    [
        ("1,2,0\n3,4\n5,6,1\n", 1, 2),
        ("1,2,0\n\n3,4,1,5\n", 1, 4),
        ('1,"2\n",0\n3,4,1\n5,6,1,\n', 2, 4),
        ('1,2,0\n3,"4,1\n5,6,1\n', 1, 2),
    ],
    ids=["fewer", "more, after an empty line", "after a quoted newline", "a quote is not closed"],
)
def test_a_row_with_another_number_of_fields(tmp_path, approved, rows, row, fields):
    path = tmp_path / "a.csv"
    path.write_text(f"a,b,y\n{rows}")
    error = error_of(path)
    approved(names(error, "path", path, f"row {row}", f"{fields} fields", "has 3"))
    with pytest.raises(FieldError) as caught:
        table(path).samples_header()
    assert str(caught.value) == str(error)


def test_such_a_row_is_told_before_a_value_that_is_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,y\nn/a,0\n1,1\n2,0,9\n")
    names(error_of(path), "path", "row 2", "3 fields")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a,b,y\n1,2,z\n3,4,é\n".encode("latin-1"), 3),
        ("a,é,y\n1,2,0\n".encode("latin-1"), 1),
        ("a,b,y\n1,2,0\n3,é,1\n".encode("latin-1"), 3),
        ("a,b,y\n1,2,0\n".encode("utf-16"), 1),
    ],
    ids=["label", "header", "feature", "utf-16"],
)
def test_a_csv_that_is_not_utf8(tmp_path, approved, content, line):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    approved(names(error_of(path), "path", path, f"line {line}", "UTF-8"))


@pytest.mark.parametrize("content", ["", "\n", "a,y", "a,y\n"])
def test_a_csv_without_rows(tmp_path, approved, content):
    path = tmp_path / "a.csv"
    path.write_text(content)
    approved(names(error_of(path), "path", path))


def test_a_quote_that_is_not_closed_in_a_large_csv(tmp_path, approved):
    path = tmp_path / "a.csv"
    path.write_text('a,y\n1,0\n"2,1\n' + "3,0\n" * 5_000_000)
    approved(names(error_of(path), "path", path, "quote"))


# ---- npz -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"features": np.zeros(4)}, "features", ["'features'", "float64 [4]"]),
        ({"features": np.zeros((4, 1, 2))}, "features", ["[4, 1, 2]"]),
        ({"features": np.zeros((4, 0))}, "features", ["[4, 0]"]),
        ({"features": np.zeros((4, 2), complex)}, "features", ["complex128 [4, 2]"]),
        ({"features": np.full((4, 2), "a")}, "features", ["<U1 [4, 2]"]),
        ({"features": None}, "features", ["'features'", "labels, splits"]),
        ({"labels": None}, "label", ["'labels'", "features, splits"]),
        ({"labels": np.arange(3)}, "path", ["'labels'", "int64 [3]", "'features'", "4 rows"]),
        ({"labels": np.zeros((4, 1))}, "path", ["'labels'", "float64 [4, 1]", "'features'"]),
        ({"splits": np.array(["train"])}, "path", ["'splits'", "<U5 [1]", "'features'"]),
        (
            {"labels": np.array(["a", "b", "a", "b"], object)},
            "path",
            ["'labels'", "Python objects", "`.astype(str)`"],
        ),
        ({"features": np.zeros((4, 2), object)}, "path", ["'features'", "Python objects"]),
        ({"features": np.zeros((0, 2)), "labels": [], "splits": []}, "path", []),
    ],
)
def test_bad_arrays(tmp_path, approved, changes, path, words):
    arrays: dict[str, Any] = {
        "features": np.arange(8.0).reshape(4, 2),
        "labels": np.array([0, 1, 0, 1]),
        "splits": np.array(["train"] * 4),
    }
    kept = {name: value for name, value in {**arrays, **changes}.items() if value is not None}
    if kept["features" if "features" in kept else "labels"].shape[0] == 0:
        kept |= {"labels": np.array([], int), "splits": np.array([], str)}
    np.savez(tmp_path / "a.npz", **kept)
    error = error_of(tmp_path / "a.npz", label="label")
    assert error.problem.startswith(str(tmp_path / "a.npz"))
    approved(names(error, path, *words))


def test_an_npz_has_one_array_of_features(tmp_path, approved):
    path = save(measured(), tmp_path / "a.npz")
    approved(names(error_of(path, features=["age", "weight"]), "features", path, "not 2"))


def test_rows_of_an_npz_are_selected_by_split_alone(tmp_path):
    data = table(save(measured(), tmp_path / "a.npz"))
    with pytest.raises(FieldError, match=r"has no column 'age'. Valid values: features, y, split"):
        data.samples_header({"age": 3})
    with pytest.raises(FieldError, match="no row of"):
        data.samples_header({"features": 3})


@pytest.mark.parametrize(
    "content",
    [b"", b"a,y\n1,0\n", b"PK\x03\x04 torn", npy_of((2, 2))],
    ids=["empty", "a csv", "torn", "one array"],
)
def test_no_npz(tmp_path, approved, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    approved(names(error_of(path), "path", path, "`features`", "`labels`"))


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"a,y\n1,0\n"])
def test_no_parquet(tmp_path, approved, content):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    # What follows is pyarrow's.
    approved(names(error_of(path), "path", path).partition(":")[0])


def test_which_files_there_are(tmp_path, approved):
    path = save(measured(), tmp_path / "rows.csv")
    error = error_of(tmp_path / "rows.cvs")
    assert error.path == "path"
    assert error.problem == f"there is no {tmp_path / 'rows.cvs'}. Did you mean 'rows.csv'?"
    other = path.rename(tmp_path / "rows.tsv")
    endings = (".parquet", ".csv", ".npz")
    approved(names(error_of(other), "path", other, *endings))
    approved(names(error_of(tmp_path), "path", tmp_path, *endings))
    for name in ("train.csv", "test.parquet"):
        save(measured(split=None), tmp_path / name)
    approved(names(error_of(tmp_path), "path", tmp_path, ".csv and .parquet"))


def wide(path: Path, columns: int) -> Path:
    """Four rows of that many numbers."""
    values = np.arange(4.0 * columns, dtype=np.float32).reshape(4, columns)
    if path.suffix == ".parquet":
        flat = pa.array(values.reshape(-1))
        rows = pa.FixedSizeListArray.from_arrays(flat, columns)
        return lists(path, rows, rows.type)
    if path.suffix == ".npz":
        np.savez(path, features=values, y=[0, 1, 0, 1])
        return path
    text = io.StringIO()
    text.write(",".join(f"c{place}" for place in range(columns)) + ",y\n")
    for row in range(4):
        text.write("1," * columns + f"{row % 2}\n")
    path.write_text(text.getvalue())
    return path


@pytest.mark.parametrize(("ending", "columns"), [("parquet", 10**6), ("csv", 5000)])
def test_more_than_memory_holds_is_refused_before_it_is_read(
    tmp_path, monkeypatch, ending, columns
):
    path = wide(tmp_path / f"a.{ending}", columns)
    limit = 16 * columns - 1
    monkeypatch.setattr("trainables.data.table.memory", lambda: limit)
    monkeypatch.setattr("trainables.data.shared.columns._check_footer", lambda *given: None)
    monkeypatch.setattr("trainables.data.table._values", None)  # it is not called
    needed = f"{limit / 1e9:,.1f}"
    mend = "Set `limit`, or name fewer columns in `features`."
    found = f"4 rows of {columns:,} numbers in {path} take {needed} GB"
    error = error_of(path)
    # A refusal that docs/why/security.md promises.
    assert error.path == "path"
    assert error.problem == f"{found}, this machine's memory has {needed} GB. {mend}"


def test_a_row_group_and_an_npz_that_memory_does_not_hold(tmp_path, monkeypatch):
    monkeypatch.setattr("trainables.files.arrays.memory", lambda: 100_000)
    path = wide(tmp_path / "a.npz", 50_000)
    assert error_of(path).problem.startswith(f"{path} its arrays take 0.0 GB")
    monkeypatch.setattr("trainables.data.shared.named_rows.memory", lambda: 100_000)
    path = wide(tmp_path / "a.parquet", 50_000)
    assert error_of(path).problem.startswith(f"a row group of {path} would take 0.0 GB")


def test_data_sets_without_columns_name_those_that_have_some(tmp_path):
    from trainables.data.digits import Digits

    with pytest.raises(FieldError, match="Tables and parquet files do"):
        Digits().samples({"split": "test"})
    assert pd.read_csv(save(measured(), tmp_path / "a.csv")).shape == (16, 4)
