"""Rows of numbers, against what pandas, pyarrow and scikit-learn read from the same files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_wine

from tests.data.tables import FORMATS, lists, measured, save, table
from trainables.data.parquet import Parquet
from trainables.data.table import Table


def wine(folder: Path, ending: str) -> tuple[Path, np.ndarray, np.ndarray]:
    """A file of scikit-learn's wines, and their numbers and labels as scikit-learn has them."""
    numbers, labels = load_wine(return_X_y=True)
    frame = load_wine(as_frame=True).frame.rename(columns={"target": "y"})
    return save(frame, folder / f"wine.{ending}"), numbers.astype(np.float32), labels


@pytest.mark.parametrize("ending", FORMATS)
def test_reads_the_numbers_that_scikit_learn_has(tmp_path, ending):
    path, numbers, labels = wine(tmp_path, ending)
    data = table(path).read()
    assert data.train.images.dtype == np.float32
    assert np.array_equal(data.train.images, numbers)
    assert data.train.labels.dtype == np.int64
    assert np.array_equal(data.train.labels, labels)
    assert data.classes == ("0", "1", "2")
    assert data.test is None
    names = () if ending == "npz" else tuple(load_wine().feature_names)
    assert data.columns == names


@pytest.mark.parametrize("ending", FORMATS)
def test_splits_of_a_column(tmp_path, ending):
    frame = measured(split=["test", "train"] * 8, y=[0, 0, 1, 1] * 4)
    data = table(save(frame, tmp_path / f"a.{ending}")).read()
    numbers = frame[["age", "weight"]].to_numpy().astype(np.float32)
    assert np.array_equal(data.train.images, numbers[1::2])
    assert np.array_equal(data.test.images, numbers[::2])
    assert data.train.labels.tolist() == [0, 1] * 4


@pytest.mark.parametrize("ending", FORMATS)
def test_a_folder_has_a_file_for_each_split_or_its_shards(tmp_path, ending):
    frame = measured(split=None)
    names = ["train-00000-of-00002", "train-00001-of-00002", "val", "test"]
    for place, name in enumerate(names):
        save(frame[4 * place : 4 * place + 4], tmp_path / f"{name}.{ending}")
    data = table(tmp_path).read()
    numbers = frame[["age", "weight"]].to_numpy().astype(np.float32)
    assert np.array_equal(data.train.images, numbers[:8])
    assert np.array_equal(data.validation.images, numbers[8:12])
    assert np.array_equal(data.test.images, numbers[12:])


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_columns_are_matched_by_name_in_every_file(tmp_path, ending):
    frame = measured(split=None, height=np.arange(16) * 1.5, noise=1)
    sorts = {
        "train": list(frame),
        "val": list(frame)[::-1],
        "test": ["weight", "y", "height", "age"],
    }
    for folder in ("same", "other"):
        (tmp_path / folder).mkdir()
        for place, (name, order) in enumerate(sorts.items()):
            rows = frame[4 * place : 4 * place + 8]
            save(rows if folder == "same" else rows[order], tmp_path / folder / f"{name}.{ending}")
    names = ["age", "weight", "height"]
    data = table(tmp_path / "other", features=names).read()
    assert data.columns == tuple(names)
    same = table(tmp_path / "same", features=names).read()
    for split in ("train", "validation", "test"):
        found = getattr(data, split)
        assert np.array_equal(found.images, getattr(same, split).images)
    assert np.array_equal(data.test.images, frame[names][8:].to_numpy().astype(np.float32))


def test_the_order_is_that_of_the_train_file(tmp_path):
    frame = measured(split=None)
    save(frame[["weight", "age", "y"]], tmp_path / "test.csv")
    save(frame[["age", "weight", "y"]], tmp_path / "train.csv")
    assert table(tmp_path).read().columns == ("age", "weight")


# ---- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float16()),
        pa.list_(pa.int8()),
        pa.large_list(pa.float64()),
        pa.list_(pa.float32(), 3),
        pa.list_(pa.uint64(), 3),
        pa.list_(pa.bool_(), 3),
    ],
    ids=str,
)
def test_a_column_of_lists(tmp_path, kind):
    rows = np.random.default_rng(0).integers(0, 2, (40, 3))
    if not pa.types.is_boolean(kind.value_type):
        rows = rows * 17
    path = lists(
        tmp_path / "a.parquet", rows.astype(kind.value_type.to_pandas_dtype()).tolist(), kind
    )
    data = table(path)
    assert np.array_equal(data.read().train.images, rows.astype(np.float32))
    assert data.read().columns == ("emb[3]",)
    assert data.samples_header().shape == (3,)
    there = np.stack(pd.read_parquet(path)["emb"].to_list())
    assert np.array_equal(data.read().train.images, there.astype(np.float32))


def test_lists_are_preferred_to_other_numbers(tmp_path):
    path = lists(tmp_path / "a.parquet", [[1.0, 2.0]] * 4, id=[1, 2, 3, 4], words=[["a"]] * 4)
    assert table(path).read().columns == ("emb[2]",)


def test_named_columns_stand_side_by_side_in_their_order(tmp_path):
    emb = np.arange(12.0).reshape(4, 3)
    more = np.arange(8).reshape(4, 2) * 10
    path = lists(tmp_path / "a.parquet", emb.tolist(), more=more.tolist(), age=[5, 6, 7, 8])
    data = table(path, features=["more", "age", "emb"]).read()
    assert data.columns == ("more[2]", "age", "emb[3]")
    wanted = np.hstack([more, [[5], [6], [7], [8]], emb]).astype(np.float32)
    assert np.array_equal(data.train.images, wanted)
    assert np.array_equal(table(path, features="more").read().train.images, more)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_text_is_left_out_and_booleans_are_numbers(tmp_path, ending):
    smoker = np.arange(16) % 3 == 0
    frame = measured(name=[f"n{place}" for place in range(16)], smoker=smoker)
    data = table(save(frame, tmp_path / f"a.{ending}")).read()
    assert data.columns == ("age", "weight", "smoker")
    assert data.train.images[:, 2].tolist() == smoker[:12].astype(float).tolist()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("index", [None, "patient"])
def test_a_saved_index_is_no_feature(tmp_path, ending, index):
    """pandas writes one without a name as `__index_level_0__`, or in a csv with an empty name."""
    path = tmp_path / f"a.{ending}"
    frame = measured().sample(frac=1, random_state=0)
    if ending == "parquet":
        frame.rename_axis(index).to_parquet(path)
        assert len(pq.read_schema(path)) == 5
    else:
        frame.to_csv(path, index_label=index and "Unnamed: 0")
    assert table(path).read().columns == ("age", "weight")


def test_decimals_and_large_whole_numbers(tmp_path):
    columns = {
        "price": pa.array([1, 2, 3, 4]).cast(pa.decimal128(22, 2)),
        "large": pa.array([2**63, 2**64 - 1, 0, 1], pa.uint64()),
        "y": [0, 1, 0, 1],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = table(tmp_path / "a.parquet").read().train.images
    assert found.tolist() == [[1, 2**63], [2, 2**64], [3, 0], [4, 1]]


def test_more_rows_than_a_batch_stay_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("trainables.data.table.VALUES", 60)
    path, numbers, _ = wine(tmp_path, "parquet")
    told: list[tuple[int, int]] = []
    data = table(path).read(progress=lambda done, total: told.append((done, total)))
    assert np.array_equal(data.train.images, numbers)
    assert told[:2] == [(4, 178), (8, 178)] and told[-1] == (178, 178)


def test_a_name_with_a_dot_is_one_column(tmp_path):
    path = save(measured(**{"a.b": np.arange(16), "a": -1}), tmp_path / "a.parquet")
    found = table(path, features=["a.b", "a"]).read().train.images
    assert found.tolist() == [[place, -1] for place in range(12)]


# ---- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", FORMATS)
def test_words_are_numbered_in_sorted_order(tmp_path, ending):
    words = ["dog", "cat", "Emu", "cat"] * 4
    data = table(save(measured(y=words), tmp_path / f"a.{ending}"))
    assert data.read().classes == ("Emu", "cat", "dog")
    assert data.read().train.labels.tolist() == [2, 1, 0, 1] * 3
    assert data.samples_header().names == {0: "Emu", 1: "cat", 2: "dog"}


def test_a_word_that_train_does_not_use_changes_no_number(tmp_path):
    frame = measured(y=["b", "c"] * 6 + ["a"] * 4, split=["train"] * 12 + ["later"] * 4)
    data = table(save(frame, tmp_path / "a.csv"), splits={"train": "train"})
    assert data.read().classes == ("b", "c")
    found = data.samples({"split": "later"})
    assert {found.names[label] for label in found.labels.tolist()} == {"a"}


@pytest.mark.parametrize("ending", FORMATS)
def test_words_that_are_all_whole_numbers_are_numbers(tmp_path, ending):
    """As text, 10 would come before 2."""
    words = [str(place % 12) for place in range(24)]
    frame = pd.DataFrame({"a": np.arange(24.0), "y": words})
    data = table(save(frame, tmp_path / f"a.{ending}")).read()
    assert data.train.labels.tolist() == [place % 12 for place in range(24)]
    assert data.classes == tuple(map(str, range(12)))


@pytest.mark.parametrize("ending", FORMATS)
def test_007_is_not_7(tmp_path, ending):
    words = ["7", "007"] * 8
    data = table(save(measured(y=words), tmp_path / f"a.{ending}")).read()
    assert data.classes == ("007", "7")
    assert data.train.labels.tolist() == [1, 0] * 6


def test_in_a_csv_only_an_empty_field_is_missing(tmp_path):
    data = table(save(measured(y=["NA", "null"] * 8), tmp_path / "a.csv")).read()
    assert data.classes == ("NA", "null")


def test_labels_of_categories_and_of_truth(tmp_path):
    frame = measured(y=pd.Categorical(["u", "t"] * 8, categories=["u", "t"]))
    assert table(save(frame, tmp_path / "a.parquet")).read().classes == ("t", "u")
    for ending in FORMATS:
        path = save(measured(y=[True, False] * 8), tmp_path / f"b.{ending}")
        found = table(path).read()
        assert found.train.labels.tolist() == [1, 0] * 6


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_numbers_have_the_names_of_a_class_column(tmp_path, ending):
    path = save(measured(**{"class": ["cat", "dog"] * 8}), tmp_path / f"a.{ending}")
    assert table(path).read().classes == ("cat", "dog")


def test_numbers_have_the_names_of_hugging_face_metadata(tmp_path):
    about = {"info": {"features": {"y": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    found = pa.table({"a": [1.0, 2.0] * 4, "y": [0, 1] * 4})
    found = found.replace_schema_metadata({"huggingface": json.dumps(about)})
    pq.write_table(found, tmp_path / "a.parquet")
    assert table(tmp_path / "a.parquet").read().classes == ("cat", "dog")


# ---- csv and npz ---------------------------------------------------------------------------------


def test_a_csv_is_read_as_pandas_reads_it(tmp_path):
    text = (
        '\ufeffname,"a ""b""",c,y\r\n"x,\r\n""y""",1,-2.5e3,p\r\n\r\n'
        'z,+.5, 7. ,q\r\n"z\n",1e-3,TRUE,p\r\nz,007,false,q\r\n'
    )
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    data = table(path).read()
    assert data.columns == ('a "b"', "c")
    assert data.train.labels.tolist() == [0, 1, 0, 1]
    assert data.train.images[:, 1].tolist() == [-2500, 7, 1, 0]
    column = pd.read_csv(path)['a "b"'].to_numpy()
    assert np.array_equal(data.train.images[:, 0], column.astype(np.float32))


def test_arrays_of_other_names_and_kinds(tmp_path):
    rows = np.asfortranarray(np.arange(8).reshape(4, 2)).astype(">i4")
    np.savez_compressed(tmp_path / "a.npz", X=rows, t=np.array([0, 1, 0, 1], ">u2"))
    data = table(tmp_path / "a.npz", features="X", label="t").read()
    assert data.train.images.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert data.train.labels.tolist() == [0, 1, 0, 1]


def test_an_npz_needs_no_option(tmp_path):
    features = np.arange(8.0).reshape(4, 2)
    splits = np.array(["train", "train", "train", "test"])
    np.savez(tmp_path / "a.npz", features=features, labels=[0, 1, 0, 1], splits=splits)
    data = Table(path=str(tmp_path / "a.npz")).read()
    assert data.train.images.tolist() == features[:3].tolist()
    assert data.test.labels.tolist() == [1]


# ---- where, rows, digest -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "where", "rows"),
    [
        ("parquet", {"ward": 3}, [13]),
        ("parquet", {"ward": 3, "split": "train"}, [1, 4, 7, 10]),
        ("csv", {"ward": 3}, [13]),
        ("csv", {"ward": "3", "split": "train"}, [1, 4, 7, 10]),
        ("csv", {"night": True}, [12, 14]),
        ("csv", {"weight": 0.5}, [14]),
        ("csv", {"y": 1, "note": None}, [13]),
        ("csv", {"note": "NA"}, [12, 14, 15]),
        ("npz", {"split": "train"}, list(range(12))),
    ],
)
def test_rows_are_selected_by_their_values(tmp_path, ending, where, rows):
    frame = measured(
        ward=[place % 3 + 2 for place in range(16)],
        night=[place % 2 == 0 for place in range(16)],
        weight=[0.5 if place % 7 == 0 else 2.0 for place in range(16)],
        note=[None if place == 13 else "NA" for place in range(16)],
    )
    if ending == "npz":
        frame = frame[["age", "weight", "y", "split"]]
    data = table(save(frame, tmp_path / f"a.{ending}"), features=None if ending == "npz" else "age")
    (found,) = data.samples_header(where).rows.values()
    assert found.tolist() == rows
    numbers = frame[["age", "weight"] if ending == "npz" else ["age"]].to_numpy()
    assert np.array_equal(data.samples(where).images, numbers[rows].astype(np.float32))


def test_rows_are_those_of_the_file_whoever_reads_it(tmp_path):
    """So a shift set is known as the study's own data."""
    path = save(measured(image=[b""] * 16), tmp_path / "a.parquet")
    ours, theirs = table(path).source_rows(), Parquet(path=str(path), label="y").source_rows()
    assert ours.keys() == theirs.keys()
    assert [rows.tolist() for rows in ours.values()] == [list(range(16))]


def test_features_are_in_the_digest(tmp_path):
    path = save(measured(), tmp_path / "a.csv")
    others: list[dict[str, Any]] = [{}, {"features": "age"}, {"features": ["age"]}]
    assert len({table(path, **options).source_digest() for options in others}) == 3


# ---- what is said of columns ---------------------------------------------------------------------


def notes_of(folder: Path, **columns: Any) -> tuple[str, ...]:
    size = len(next(iter(columns.values())))
    frame = pd.DataFrame({"y": np.arange(size) // 2 % 2, **columns})
    return table(save(frame, folder / "a.parquet")).read().notes


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("counted", ["in the file", "in the split"])
def test_the_row_number_is_told(tmp_path, start, counted):
    split = np.array(["test", "train"] * 20)
    number = np.arange(40) // (1 if counted == "in the file" else 2)
    found = notes_of(tmp_path, id=number + start, split=split)
    assert found == ("column 'id' is the row number: leave it out",)
    assert notes_of(tmp_path, id=number[::-1] + start, split=split) == ()


def test_a_row_number_that_goes_on_over_shards_is_told(tmp_path):
    frame = pd.DataFrame({"id": np.arange(40), "y": np.arange(40) // 2 % 2})
    save(frame[:20], tmp_path / "train-00000-of-00002.csv")
    save(frame[20:], tmp_path / "train-00001-of-00002.csv")
    save(frame[:10], tmp_path / "test.csv")
    assert len(table(tmp_path).read().notes) == 1
    assert len(table(tmp_path, limit=30).read().notes) == 1


def test_a_column_that_fixes_the_label_is_told(tmp_path):
    labels = np.arange(200) // 2 % 2
    ward = labels * 4 + np.arange(200) % 4
    found = notes_of(tmp_path, ward=ward, copy=labels)
    assert found == (
        "column 'ward' alone fixes the label: leave it out, unless it is known before the label is",
        "column 'copy' is the label itself: leave it out",
    )
    assert notes_of(tmp_path, ward=np.where(np.arange(200) == 7, 0, ward)) == ()


def test_no_false_alarm_on_columns_by_chance(tmp_path):
    random = np.random.default_rng(0)
    columns = {
        "normal": random.normal(size=2000),
        "few": random.integers(0, 5, 2000),
        "many": random.integers(0, 1900, 2000),
        "counts": random.poisson(2, 2000),
        "constant": np.full(2000, 3.0),
        "sorted": np.sort(random.normal(size=2000)),
    }
    assert notes_of(tmp_path, **columns) == ()
    rare = np.where(np.arange(2000) % 700 == 5, 1, 0)  # three rows, all of one value
    assert notes_of(tmp_path, few=np.where(rare, 5, columns["few"]), y=rare) == ()


def test_a_column_that_float32_flattens_is_told(tmp_path):
    seconds = 1.6e9 + 50 * np.random.default_rng(0).normal(size=400)
    kept = len(set(seconds.astype(np.float32).tolist()))
    assert kept < 6
    (found,) = notes_of(tmp_path, time=seconds, mild=seconds - 1.6e9 + 1e5, constant=[7e9] * 400)
    std = f"{seconds.std():.3g}"
    assert found == (
        f"column 'time' varies by {std} around 1.6e+09: float32 keeps {kept} of its values apart;"
        " subtract its mean first"
    )


def test_only_train_is_looked_at_and_many_columns_are_counted(tmp_path):
    base = {f"c{place}": np.arange(40) + place % 2 for place in range(5)}
    found = notes_of(tmp_path, **base)
    assert found[2:] == (
        "column 'c2' is the row number: leave it out",
        "2 more columns like the last",
    )
    far = np.where(np.arange(40) < 20, 1e9 + np.arange(40) * 64 % 320, 0.0)
    found = notes_of(tmp_path, far=far, split=["train"] * 20 + ["test"] * 20)
    assert [note.partition(":")[0] for note in found] == [
        "column 'far' varies by 90.5 around 1e+09"
    ]


def test_a_place_in_a_list_is_told(tmp_path):
    rows = [[1.0, float(place), 1.5e9 + place] for place in range(40)]
    found = table(lists(tmp_path / "a.parquet", rows)).read().notes
    assert [note.partition("]")[0] for note in found] == ["column 'emb[1", "column 'emb[2"]
