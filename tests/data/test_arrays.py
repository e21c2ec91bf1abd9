"""The files of data given as objects: read as NumPy alone has them, and refused where altered."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

from study.notebook.objects import given_in, keep
from study.notebook.places import Place
from trainables.data.arrays import Arrays
from trainables.data.digits import Digits
from trainables.loading.cache import load_split, prepare
from trainables.problems import FieldError


def kept(folder: Path, data: object) -> Path:
    """The folder with the files of data."""
    given = given_in(data)
    assert given is not None
    keep(given, folder, Place(), lambda inputs: None)
    return folder / "data"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    numbers, labels = load_digits(return_X_y=True)
    images = numbers.astype(np.uint8).reshape(-1, 1, 8, 8)
    splits = {"train": (images[:1500], labels[:1500]), "test": (images[1500:], labels[1500:])}
    return kept(tmp_path / "mine", splits)


def test_reads_the_pixels_that_scikit_learn_has(digits: Path) -> None:
    data = Arrays(path=str(digits))
    raw = data.read()
    assert raw.test is not None and raw.validation is None
    assert np.array_equal(raw.train.images[:, 0], load_digits().images[:1500])
    assert raw.test.labels.tolist() == load_digits().target[1500:].tolist()
    assert raw.classes == tuple("0123456789") and data.shown == "mine/data"


def test_numpy_alone_reads_the_files(digits: Path) -> None:
    plain = json.loads((digits / "arrays.json").read_text())
    files = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in digits.glob("*.npy")
    }
    assert plain["sha256"] == files and len(files) == 4
    samples = np.load(digits / "train.npy", allow_pickle=False)
    assert samples.dtype == np.uint8 and samples.shape == (1500, 1, 8, 8)
    labels = np.load(digits / "test_labels.npy", allow_pickle=False)
    assert labels.dtype == np.int64 and labels.shape == (297,)


def test_its_splits_are_those_of_our_digits(tmp_path: Path) -> None:
    """The same samples in the same order, from another source: the same splits by seed."""
    numbers, labels = load_digits(return_X_y=True)
    path = kept(tmp_path / "mine", (numbers.astype(np.uint8).reshape(-1, 1, 8, 8), labels))
    mine = prepare(Arrays(path=str(path)), 3, tmp_path / "cache")
    ours = prepare(Digits(), 3, tmp_path / "cache")
    assert mine.sizes == ours.sizes and mine.mean == ours.mean and mine.digest != ours.digest
    for name in ("train", "validation"):
        assert load_split(mine, name).images.equal(load_split(ours, name).images)
        assert load_split(mine, name).labels.equal(load_split(ours, name).labels)


def test_rows_keep_their_columns_and_are_warned_of(tmp_path: Path) -> None:
    numbers, labels = load_wine(return_X_y=True, as_frame=True)
    frame = numbers.assign(target=labels)
    raw = Arrays(path=str(kept(tmp_path / "mine", (frame, labels)))).read()
    assert raw.columns == (*load_wine().feature_names, "target")
    assert np.array_equal(raw.train.images[:, :-1], numbers.to_numpy().astype(np.float32))
    assert raw.notes == ("column 'target' is the label itself: leave it out",)


def test_no_group_is_in_two_splits(tmp_path: Path) -> None:
    numbers, labels = load_digits(return_X_y=True)
    patients = np.array([f"p{number % 120}" for number in range(len(labels))])
    path = kept(tmp_path / "mine", {"train": (numbers, labels), "groups": patients})
    data = Arrays(path=str(path))
    raw = data.read()
    assert raw.train.groups is not None and data.unit == "groups"
    names = [raw.group_names[number] for number in raw.train.groups.tolist()]
    assert names == patients.tolist()
    prepared = prepare(data, 0, tmp_path / "cache")
    whose = {
        row.tobytes(): patient for row, patient in zip(numbers.astype("f4"), patients, strict=True)
    }
    found = []
    for name in ("train", "validation", "test"):
        samples = np.load(prepared.directory / f"{name}.npy", allow_pickle=False)
        found.append({whose[row.tobytes()] for row in samples})
    assert sum(map(len, found)) == len(set.union(*found)) == 120
    few = Arrays(path=str(path), limit=300).read()
    assert few.train.groups is not None and len(few.train.labels) <= 300
    for group in np.unique(few.train.groups):  # whole
        assert (few.train.groups == group).sum() == (raw.train.groups == group).sum()


def test_groups_of_numbers_are_themselves_in_every_split(tmp_path: Path) -> None:
    images = np.arange(12 * 4, dtype=np.uint8).reshape(12, 1, 2, 2)
    pair = (images, np.arange(12) % 2)
    data = {"train": pair, "test": pair, "groups": {"train": np.arange(12) // 2, "test": [7] * 12}}
    raw = Arrays(path=str(kept(tmp_path / "mine", data))).read()
    assert raw.train.groups is not None and raw.test is not None and raw.test.groups is not None
    assert raw.train.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert raw.test.groups.tolist() == [7] * 12 and raw.group_names == {}


# ---- folders that are not as they were written ---------------------------------------------------


def test_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match=r"path: there is no .*arrays\.json\. Give the folder"):
        Arrays(path=str(tmp_path)).source_digest()


@pytest.mark.parametrize("file", ["train.npy", "train_labels.npy", "test.npy"])
def test_a_file_that_was_altered(digits: Path, file: str) -> None:
    content = bytearray((digits / file).read_bytes())
    content[-1] ^= 1
    (digits / file).write_bytes(content)
    with pytest.raises(FieldError, match=f"{file} is not as it was written. Restore it"):
        Arrays(path=str(digits)).source_digest()
    (digits / file).unlink()
    with pytest.raises(FieldError, match=f"{file} cannot be read"):
        Arrays(path=str(digits)).source_digest()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "has format 2, this version reads 1"),
        ("classes", ["a"], "is not as calstudy writes it"),
        ("classes", 3, "cannot be read"),
        ("sha256", {}, "is not as calstudy writes it"),
        ("sha256", [], "cannot be read"),
        ("columns", [1], "is not as calstudy writes it"),
    ],
)
def test_what_the_json_may_not_say(digits: Path, key: str, value: object, message: str) -> None:
    file = digits / "arrays.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(FieldError, match=message):
        Arrays(path=str(digits)).source_digest()


def test_objects_of_python_are_not_loaded(digits: Path) -> None:
    np.save(digits / "train.npy", np.array([{}] * 1500, dtype=object), allow_pickle=True)
    with pytest.raises(FieldError, match=r"train\.npy cannot be read"):
        Arrays(path=str(digits)).read()


def test_labels_that_are_no_classes(digits: Path) -> None:
    np.save(digits / "train_labels.npy", np.full(1500, 10))
    with pytest.raises(FieldError, match=r"the labels of train in .* are not 10 classes'"):
        Arrays(path=str(digits)).read()
