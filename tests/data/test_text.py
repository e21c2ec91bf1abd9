"""Texts in files and folders, and what is refused."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainables.data.text import Text
from trainables.dataset import RawData, RawSplit
from trainables.problems import FieldError

ROWS = pd.DataFrame(
    {
        "text": ["A good film", "Bad.", "so-so 1 2 3 4", "good", "bad film", "a film"],
        "y": ["yes", "no", "no", "yes", "no", "yes"],
        "split": ["train"] * 4 + ["test"] * 2,
        "day": [1, 1, 2, 2, 3, 4],
    }
)


def texts(path: Path, **options: Any) -> Text:
    return Text(**{"path": str(path), "label": "y", "length": 4, **options})


def saved(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


def back(raw: RawData, split: RawSplit) -> list[str]:
    """The texts that samples stand for."""
    assert raw.words is not None and split.images.dtype == np.int32
    names = ["", "?", *raw.words.all]
    return [" ".join(names[number] for number in row if number) for row in split.images]


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_column_of_texts_and_labels_that_are_words(tmp_path: Path, ending: str) -> None:
    raw = texts(saved(ROWS, tmp_path / f"a.{ending}")).read()
    assert raw.classes == ("no", "yes") and raw.test is not None and raw.words is not None
    assert back(raw, raw.train) == ["a good film", "bad .", "so - so 1", "good"]
    assert back(raw, raw.test) == ["bad film", "a film"]
    assert raw.train.labels.tolist() == [1, 0, 0, 1] and raw.test.labels.tolist() == [0, 1]
    assert raw.words.cut == 1 and len(set(raw.words.all)) == len(raw.words.all) == 8
    assert (raw.words.most, raw.words.vectors) == (20_000, None)
    last = texts(tmp_path / f"a.{ending}", keep="last").read()
    assert back(last, last.train)[2] == "1 2 3 4"
    assert last.train.images[0, 0] == 0  # the last words have zeros in front


def test_rows_by_their_values_and_a_header_that_reads_no_text(tmp_path: Path) -> None:
    data = texts(saved(ROWS, tmp_path / "a.csv"))
    found = data.samples({"day": 2, "split": "train"})
    names = ["", "?", *found.words]
    assert [names[number] for number in found.images[1] if number] == ["good"]
    header = data.samples_header({"day": 2, "split": "train"})
    assert (header.shape, header.kind) == ((4,), "words")
    assert header.labels is not None and header.labels.tolist() == found.labels.tolist() == [0, 1]
    (rows,) = header.rows.values()
    assert rows.tolist() == [2, 3]


def folder_of(path: Path, frame: pd.DataFrame, splits: bool) -> Path:
    for place, (text, label, split, _) in enumerate(frame.itertuples(index=False)):
        folder = path / (split if splits else "") / label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{place}.txt").write_text(text, encoding="utf-8")
    return path


def test_folders_have_the_same_texts(tmp_path: Path) -> None:
    with_splits = texts(folder_of(tmp_path / "splits", ROWS, True)).read()
    assert with_splits.classes == ("no", "yes") and with_splits.test is not None
    assert back(with_splits, with_splits.train) == ["bad .", "so - so 1", "a good film", "good"]
    assert with_splits.train.labels.tolist() == [0, 0, 1, 1]
    assert back(with_splits, with_splits.test) == ["bad film", "a film"]
    without = texts(folder_of(tmp_path / "classes", ROWS, False))
    raw = without.read()
    assert raw.test is None and raw.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert back(raw, raw.train)[2] == "bad film"
    assert sum(map(len, without.source_rows().values())) == 6
    with pytest.raises(FieldError, match="has no columns to select rows by"):
        without.samples({"day": 1})
    same = texts(tmp_path / "classes", splits={"train": "."}).read()
    assert np.array_equal(same.train.images, raw.train.images) and same.test is None


def test_every_option_that_selects_is_in_the_digest(tmp_path: Path) -> None:
    path = saved(ROWS, tmp_path / "a.csv")
    (tmp_path / "v.txt").write_text("good 1.0 2.0\n")
    changes: list[dict[str, Any]] = [{}, {"vocabulary": 3}, {"length": 5}, {"keep": "last"}]
    changes += [{"vectors": str(tmp_path / "v.txt")}, {"text": "split", "split_column": "day"}]
    digests = [texts(path, **change).source_digest() for change in changes]
    assert len(set(digests)) == len(changes)
    (tmp_path / "v.txt").write_text("good 1.0 2.5 \n")
    assert texts(path, vectors=str(tmp_path / "v.txt")).source_digest() not in digests


def refused(path: Path, **options: Any) -> FieldError:
    with pytest.raises(FieldError) as caught:
        texts(path, **options).read()
    assert "\n" not in str(caught.value)
    return caught.value


def test_texts_that_are_not_utf8_are_named_with_their_row(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"text,y\ngood,1\nd\xe9j\xe0,0\n")
    assert refused(tmp_path / "latin.csv").problem.startswith(
        f"{tmp_path / 'latin.csv'}, line 3 is not UTF-8"
    )
    column = pa.array([b"good", b"d\xe9j\xe0"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column, "y": [0, 1]}), tmp_path / "latin.parquet")
    assert "row 1: the text is not UTF-8" in refused(tmp_path / "latin.parquet").problem


@pytest.mark.parametrize(
    ("options", "path", "found"),
    [
        ({"text": "txt"}, "text", r"has no column 'txt'.*Did you mean 'text'"),
        ({"text": "day"}, "text", r"column 'day' has type int64. Columns of text: text, y, split"),
        ({"text": "y"}, "text", r"'y' is the label. Name another column"),
        ({"vectors": "nowhere.txt"}, "vectors", "nowhere.txt cannot be read: No such file"),
        ({"vocabulary": 1}, "vocabulary", r"must be .*2"),
        ({"group": "text"}, "group", "'text' is the text"),
    ],
)
def test_options_that_fit_no_file(tmp_path: Path, options: Any, path: str, found: str) -> None:
    saved(ROWS, tmp_path / "a.parquet")
    with pytest.raises(FieldError) as caught:
        made = texts(tmp_path / "a.parquet", **options)
        made.source_digest()
        made.read()
    assert caught.value.path == path and re.search(found, str(caught.value)), str(caught.value)


def test_folders_that_are_no_classes(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "has no folders" in refused(tmp_path / "empty").problem
    path = folder_of(tmp_path / "a", ROWS, True)
    (path / "test" / "maybe").mkdir()
    (path / "test" / "maybe" / "9.txt").write_text("hm")
    found = f"{path / 'test'} has the class 'maybe', which train does not have"
    assert refused(path).problem.startswith(found)
    assert refused(path, group="day").path == "group"


def test_folders_of_splits_without_train_say_so(tmp_path: Path) -> None:
    path = folder_of(tmp_path / "a", ROWS, True)
    (path / "train").rename(path / "dev")
    error = refused(path)
    assert error.path == "splits" and "is called train" in error.found
    assert "dev, test" in error.mend
    shutil.rmtree(path / "dev")
    assert refused(path).path == "splits"


def test_folders_of_texts_may_be_classes_named_like_splits(tmp_path: Path) -> None:
    names = {"no": "dev", "yes": "test"}
    frame = ROWS.assign(y=ROWS["y"].map(names))
    assert texts(folder_of(tmp_path / "a", frame, False)).read().classes == ("dev", "test")
