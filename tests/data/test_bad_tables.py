"""What is said of tables that cannot be used: one line, with file, row and column."""

import io
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
FILL = "Fill it, or leave out the row or the column."


def says(error: FieldError, path: str, problem: str) -> None:
    assert (error.path, error.problem) == (path, problem)


# ---- values --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, f"a value is missing. {FILL}"),
        (np.inf, f"an infinite value. {FILL}"),
        (-np.inf, f"an infinite value. {FILL}"),
        (1e39, "1e+39 is beyond float32. Divide the column by a power of ten."),
    ],
)
def test_a_value_that_is_no_number(tmp_path, ending, value, said):
    weight = [2.5] * 13 + [value, 1.0, value]
    path = save(measured(weight=weight), tmp_path / f"a.{ending}")
    says(error_of(path), "features", f"{path}, row 13, column 'weight': {said}")


def test_nan_is_no_number(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n1,2,0\n3,NaN,1\n")
    says(error_of(path), "features", f"{path}, row 1, column 'b': NaN. {FILL}")
    column = pa.array([1.0, np.nan, 2.0])
    pq.write_table(pa.table({"a": column, "y": [0, 1, 0]}), path.with_suffix(".parquet"))
    assert "row 1, column 'a': NaN." in error_of(path.with_suffix(".parquet")).problem
    values = np.array([[1.0, 2.0], [3.0, np.nan]])
    np.savez(path.with_suffix(".npz"), features=values, y=np.array([0, 1]))
    assert "a.npz, row 1, column 1: NaN." in error_of(path.with_suffix(".npz")).problem


@pytest.mark.parametrize("word", ["n/a", "1,5", "?", "1_000", "0x1F", "-", "1.2.3"])
def test_text_among_the_numbers_of_a_csv(tmp_path, word):
    weight = ["2.5"] * 13 + [word, "1.0", "true"]
    path = save(measured(weight=weight), tmp_path / "a.csv")
    mend = "Encode it as numbers, e.g. as a column of 0 and 1 for each word."
    found = f"{path}, row 13, column 'weight': '{word}' is text, not a number"
    says(error_of(path), "features", f"{found}. {mend}")


@BOTH
def test_text_that_is_named(tmp_path, ending):
    path = save(measured(city=["Bern", "Rome"] * 8), tmp_path / f"a.{ending}")
    error = error_of(path, features=["age", "city"])
    assert error.path == "features"
    row, found = f"{path}, row 0, column 'city'", "'Bern' is text, not a number"
    if ending == "parquet":
        row, found = str(path), "column 'city' has type string, not numbers or lists of numbers"
    assert error.found == f"{row}: {found}"
    assert error.mend.startswith("Encode it as numbers")


def test_rows_are_counted_in_their_own_file(tmp_path):
    frame = measured(split=None)
    save(frame, tmp_path / "test.csv")
    frame.loc[5, "weight"] = np.nan
    save(frame, tmp_path / "train.csv")
    assert f"{tmp_path / 'train.csv'}, row 5, column 'weight'" in error_of(tmp_path).problem


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64())], ids=str)
def test_lists_of_differing_length(tmp_path, kind):
    path = lists(tmp_path / "a.parquet", [[1, 2], [3, 4], [5], [6, 7, 8]], kind)
    found = f"{path}, row 2, column 'emb': a list of 1 numbers, the first has 2"
    says(error_of(path), "features", f"{found}. All must be of one length.")


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    [
        ([[1.0], None, [2.0], [3.0]], None, "row 1, column 'emb': a value is missing"),
        ([[1.0], [None], [2.0], [3.0]], None, "row 1, column 'emb': a value is missing"),
        ([None, [1.0]], None, "row 0, column 'emb': the list is missing or empty"),
        ([[], [1.0]], None, "row 0, column 'emb': the list is missing or empty"),
        ([[1.0, 2.0], [1.0, np.nan]], None, "row 1, column 'emb[1]': NaN"),
    ],
)
def test_gaps_in_lists(tmp_path, rows, kind, said):
    path = lists(tmp_path / "a.parquet", rows, kind)
    assert error_of(path).problem.startswith(f"{path}, {said}")


def test_a_gap_in_lists_of_fixed_size(tmp_path):
    """pyarrow writes it and does not read it again."""
    path = lists(tmp_path / "a.parquet", [[1.0], None], pa.list_(pa.float64(), 1))
    error = error_of(path)
    assert error.found.startswith(f"{path} cannot be read as parquet: Expected all lists")
    assert error.mend == "A list of fixed size is missing: fill it, or remove its row."


# ---- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "path", "said"),
    [
        ({"features": ["age", "y"]}, "features", "'y' is the label. Remove it."),
        ({"features": "split"}, "features", "'split' is the split. Remove it."),
        ({"features": ["age", "age"]}, "features", "'age' is listed twice. Remove one."),
        ({"features": []}, "features", "must name columns, got []."),
        ({"features": ["age", 3]}, "features", "must name columns, got ['age', 3]."),
        ({"features": 3}, "features", "must be text or a list, got 3."),
        (
            {"features": ["age", "wieght"]},
            "features",
            "has no column 'wieght'. Did you mean 'weight'?",
        ),
        ({"label": "yy"}, "label", "has no column 'yy'. Did you mean 'y'?"),
        ({"split_column": "splt"}, "split_column", "has no column 'splt'. Did you mean 'split'?"),
        ({"splits": {"train": "trian"}}, "splits", "has no split 'trian'. Did you mean 'train'?"),
        ({"limit": 1}, "limit", "1 is too few for 2 classes."),
    ],
)
@BOTH
def test_bad_option(tmp_path, ending, options, path, said):
    error = error_of(save(measured(), tmp_path / f"a.{ending}"), **options)
    assert error.path == path
    assert error.problem.removeprefix(f"{tmp_path / f'a.{ending}'} ") == said


def test_of_many_columns_a_few_are_named(tmp_path):
    columns = {f"column_{place}": [1.0, 2.0] for place in range(3000)}
    pq.write_table(pa.table({**columns, "y": [0, 1]}), tmp_path / "a.parquet")
    problem = error_of(tmp_path / "a.parquet", features="age").problem
    assert "has no column 'age'. 3,001 columns, the first are column_0, column_1," in problem
    assert len(problem) < 400


@BOTH
def test_no_column_of_numbers(tmp_path, ending):
    path = save(measured(age=None, weight=["a", "b"] * 8), tmp_path / f"a.{ending}")
    error = error_of(path)
    assert error.path == "features"
    assert error.found == f"{path} has no column of numbers but label and split"
    assert error.mend.startswith("Encode text as numbers. Its columns: weight (string), y (")


def test_two_columns_of_lists_must_be_named(tmp_path):
    path = lists(tmp_path / "a.parquet", [[1.0]] * 4, more=[[2.0]] * 4)
    found = f"{path} has 2 columns of lists: emb, more"
    says(error_of(path), "features", f"{found}. Name those to take, e.g. `features: emb`.")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[[1.0]]] * 4, "list<element: list<element: double>>"),
        ([["a"]] * 4, "list<element: string>"),
    ],
)
def test_lists_of_no_numbers(tmp_path, values, kind):
    path = lists(tmp_path / "a.parquet", values)
    found = f"column 'emb' has type {kind}, not numbers or lists of numbers"
    assert error_of(path, features="emb").found == f"{path}: {found}"


@BOTH
def test_a_saved_index_cannot_be_named(tmp_path, ending):
    name = "__index_level_0__" if ending == "parquet" else "Unnamed: 0"
    path = save(measured(**{name: range(16)}), tmp_path / f"a.{ending}")
    error = error_of(path, features=[name, "age"])
    says(error, "features", f"{path}: column '{name}' is a saved index. Leave it out.")


@BOTH
def test_a_file_without_one_of_the_columns(tmp_path, ending):
    save(measured(split=None), tmp_path / f"train.{ending}")
    save(measured(split=None).rename(columns={"weight": "wieght"}), tmp_path / f"test.{ending}")
    error = error_of(tmp_path)
    there = tmp_path / f"test.{ending}"
    says(error, "features", f"{there} has no column 'weight'. Did you mean 'wieght'?")


def test_a_file_with_another_kind_of_column(tmp_path):
    lists(tmp_path / "train.parquet", [[1.0]] * 4)
    lists(tmp_path / "test.parquet", [1.0] * 4)
    found = f"{tmp_path / 'test.parquet'}: column 'emb' has type double, in train it is list<"
    assert error_of(tmp_path).found.startswith(found)
    lists(tmp_path / "test.parquet", [[1.0, 2.0]] * 4)
    found = (
        f"{tmp_path / 'test.parquet'}, row 0, column 'emb': a list of 2 numbers, the first has 1"
    )
    assert error_of(tmp_path).found == found


def test_two_columns_of_one_name(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,a,y\n1,2,3,0\n")
    found = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0]), pa.array([0])], ["a", "a", "y"])
    pq.write_table(found, tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        path = tmp_path / name
        says(error_of(path), "path", f"{path} has two columns named 'a'. Rename one.")


# ---- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            ["a", "b"] * 7 + ["a", "c"],
            "row 15: the label is 'c' in test, but train has none. Remove",
        ),
        (["a"] * 16, "have label 'a'; at least two classes are needed"),
        ([0, 1] * 7 + [0, -1], "row 15: the label is -1. Labels start at 0;"),
        ([0, 2] * 8, "no training sample has label 1, but the highest is 2."),
        ([0, 1] * 7 + [0, 2], "row 15: the label is 2 in test, but train has 0 to 1."),
    ],
)
@pytest.mark.parametrize("ending", FORMATS)
def test_bad_labels(tmp_path, ending, labels, said):
    error = error_of(save(measured(y=labels), tmp_path / f"a.{ending}"))
    assert error.path == "label"
    assert said in error.problem


@BOTH
def test_a_label_or_split_that_is_missing(tmp_path, ending):
    path = save(measured(y=["a", "b"] * 7 + [None, "b"]), tmp_path / f"a.{ending}")
    says(error_of(path), "label", f"{path}, row 14: the label is missing. Remove the row.")
    path = save(measured(split=["train"] * 15 + [None]), tmp_path / f"a.{ending}")
    says(error_of(path), "split_column", f"{path}, row 15: the split is missing. Add one.")


@pytest.mark.parametrize("ending", ["parquet", "npz"])
def test_labels_of_another_type(tmp_path, ending):
    path = save(measured(y=[0.0, 1.0] * 8), tmp_path / f"a.{ending}")
    found = f"{path}: column 'y' has type double, not whole numbers or words."
    taken = "calstudy takes classes, not numbers to predict (regression)."
    says(error_of(path), "label", f"{found} Write whole numbers, or words. {taken}")


@pytest.mark.parametrize("ending", FORMATS)
def test_a_label_with_one_sample(tmp_path, ending):
    frame = measured(y=["cat"] * 8 + ["dog"] * 7 + ["emu"], split=None)
    data = table(save(frame, tmp_path / f"a.{ending}"))
    found = "class 'emu' has too few samples to split: train has 1, but train, test, validation"
    with pytest.raises(FieldError, match=found):
        prepare(data, 0, tmp_path / "cache")


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
def test_a_row_with_another_number_of_fields(tmp_path, rows, row, fields):
    path = tmp_path / "a.csv"
    path.write_text(f"a,b,y\n{rows}")
    mend = "Mend the row; a field with a comma or a quote is written in quotes."
    problem = f"{path}, row {row}: {fields} fields, the header has 3. {mend}"
    says(error_of(path), "path", problem)
    with pytest.raises(FieldError, match="the header has 3"):
        table(path).samples_header()


def test_such_a_row_is_told_before_a_value_that_is_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,y\nn/a,0\n1,1\n2,0,9\n")
    assert "row 2: 3 fields" in error_of(path).problem


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
def test_a_csv_that_is_not_utf8(tmp_path, content, line):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    found = f"{path}, line {line} is not UTF-8. Save it as UTF-8."
    says(error_of(path), "path", found)


@pytest.mark.parametrize("content", ["", "\n", "a,y", "a,y\n"])
def test_a_csv_without_rows(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_text(content)
    error = error_of(path)
    assert error.path == "path"
    assert error.problem.startswith(f"{path} has no rows")


def test_a_quote_that_is_not_closed_in_a_large_csv(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('a,y\n1,0\n"2,1\n' + "3,0\n" * 5_000_000)
    says(
        error_of(path),
        "path",
        f"{path} has a row of many megabytes. Look for a quote that is not closed.",
    )


# ---- npz -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        ({"features": np.zeros(4)}, "features", "'features' is float64 [4], not numbers [N, D]"),
        ({"features": np.zeros((4, 1, 2))}, "features", "[4, 1, 2], not numbers [N, D]"),
        ({"features": np.zeros((4, 0))}, "features", "[4, 0], not numbers [N, D]"),
        ({"features": np.zeros((4, 2), complex)}, "features", "complex128 [4, 2], not numbers"),
        ({"features": np.full((4, 2), "a")}, "features", "<U1 [4, 2], not numbers"),
        ({"features": None}, "features", "has no array 'features'. It has labels, splits. Give an"),
        ({"labels": None}, "label", "has no array 'labels'. It has features, splits."),
        ({"labels": np.arange(3)}, "path", "'labels' is int64 [3], but 'features' has 4 rows."),
        ({"labels": np.zeros((4, 1))}, "path", "'labels' is float64 [4, 1], but 'features' has 4"),
        ({"splits": np.array(["train"])}, "path", "'splits' is <U5 [1], but 'features' has 4"),
        (
            {"labels": np.array(["a", "b", "a", "b"], object)},
            "path",
            "'labels' holds Python objects. Save text with `.astype(str)`",
        ),
        ({"features": np.zeros((4, 2), object)}, "path", "'features' holds Python objects."),
        ({"features": np.zeros((0, 2)), "labels": [], "splits": []}, "path", "has no rows"),
    ],
)
def test_bad_arrays(tmp_path, changes, path, said):
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
    assert error.path == path
    assert said in error.problem
    assert error.problem.startswith(str(tmp_path / "a.npz"))


def test_an_npz_has_one_array_of_features(tmp_path):
    path = save(measured(), tmp_path / "a.npz")
    found = f"{path} has one array of features, not 2. Name one array."
    says(error_of(path, features=["age", "weight"]), "features", found)


def test_rows_of_an_npz_are_selected_by_split_alone(tmp_path):
    data = table(save(measured(), tmp_path / "a.npz"))
    with pytest.raises(FieldError, match=r"has no column 'age'. Valid values: features, y, split"):
        data.samples_header({"age": 3})
    with pytest.raises(FieldError, match="no row of"):
        data.samples_header({"features": 3})


@pytest.mark.parametrize("content", [b"", b"a,y\n1,0\n", b"PK\x03\x04 torn", npy_of((2, 2))])
def test_no_npz(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    error = error_of(path)
    assert error.path == "path"
    assert error.found in (f"{path} is no npz", f"{path} is a single array")
    assert error.mend.startswith("Give an npz with `features` [N, D] of numbers, `labels` [N]")


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"a,y\n1,0\n"])
def test_no_parquet(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    assert (
        f"{tmp_path / 'a.parquet'} cannot be read as parquet"
        in error_of(tmp_path / "a.parquet").problem
    )


def test_which_files_there_are(tmp_path):
    path = save(measured(), tmp_path / "rows.csv")
    found = f"there is no {tmp_path / 'rows.cvs'}. Did you mean 'rows.csv'?"
    says(error_of(tmp_path / "rows.cvs"), "path", found)
    path.rename(tmp_path / "rows.tsv")
    problem = f"{tmp_path / 'rows.tsv'} is no .parquet, .csv or .npz file."
    says(error_of(tmp_path / "rows.tsv"), "path", problem)
    error = error_of(tmp_path)
    assert error.found == f"no .parquet, .csv or .npz file in {tmp_path}"
    assert error.mend.startswith("Give a parquet, csv or npz file, or a folder with parquet, csv")
    for name in ("train.csv", "test.parquet"):
        save(measured(split=None), tmp_path / name)
    found = f"{tmp_path} has .csv and .parquet files. Keep those of one kind."
    says(error_of(tmp_path), "path", found)


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
    says(error_of(path), "path", f"{found}, this machine's memory has {needed} GB. {mend}")


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
