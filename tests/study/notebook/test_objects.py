"""Data given as objects, against what NumPy and torch themselves hold; and what is refused."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import sparse
from sklearn.datasets import load_iris
from torch.utils import data as of_torch
from torchvision import transforms

from study import Study, UserError
from study.schema.errors import SpecError
from trainables.dataset import RawData

IMAGES = np.random.default_rng(0).integers(0, 256, (60, 3, 8, 6), dtype=np.uint8)
LABELS = np.arange(60) % 3
ROWS = np.random.default_rng(1).normal(size=(60, 5)).astype(np.float32)
WORDS = np.array(["cat", "dog", "ant"])[LABELS]


class Photos(of_torch.Dataset):
    """60 items, each made by a function of its place, as torchvision's data sets are."""

    def __init__(self, item: Callable[[int], Any]) -> None:
        self.item = item

    def __len__(self) -> int:
        return 60

    def __getitem__(self, place: int) -> Any:
        if place >= 60:
            raise IndexError(place)
        return self.item(place)


class Named(Photos):
    classes: ClassVar = ["ant", "bee", "cat", "dog"]


class Hub:
    """Duck-typed as a data set of Hugging Face."""

    def __init__(self, count: int = 60) -> None:
        self.features = {
            "id": object(),
            "picture": type("Image", (), {})(),
            "label": type("ClassLabel", (), {"names": ["ant", "bee", "cat"]})(),
        }
        self.column_names = list(self.features)
        self.shape = (count, 3)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"id": place, "picture": photo(place), "label": int(LABELS[place])}


class DatasetDict(dict):  # type: ignore[type-arg]
    """As Hugging Face has it."""


class Endless(of_torch.IterableDataset):
    def __iter__(self) -> Any:
        return iter(())


def photo(place: int, mode: str = "RGB") -> Image.Image:
    return Image.fromarray(IMAGES[place].transpose(1, 2, 0)).convert(mode)


def created(folder: Path, data: Any, **keys: Any) -> Study:
    usual = {"name": "mine", "model": "mlp", "methods": ["focal"], "storage": folder}
    return Study.create(**{**usual, "data": data, **keys})


def raw(folder: Path, data: Any) -> RawData:
    found: RawData = created(folder, data).spec.data.read()
    return found


# ---- what is taken -------------------------------------------------------------------------------

SAME_IMAGES: dict[str, Any] = {
    "arrays": (IMAGES, LABELS),
    "a list of two": [IMAGES, list(LABELS)],
    "tensors": (torch.tensor(IMAGES), torch.tensor(LABELS)),
    "a view": (np.asfortranarray(IMAGES), pd.Series(LABELS)),
    "PIL images": Photos(lambda i: (photo(i), int(LABELS[i]))),
    "uint8 tensors": of_torch.TensorDataset(torch.tensor(IMAGES), torch.tensor(LABELS)),
    "arrays one by one": Photos(lambda i: (IMAGES[i], np.int32(LABELS[i]))),
    "a dict for each": Photos(lambda i: {"img": photo(i), "label": LABELS[i]}),
    "lists": ([photo(i) for i in range(60)], LABELS.tolist()),
    "pairs": [(photo(i), LABELS[i]) for i in range(60)],
    "of a hub": Hub(),
    "a mapping": {"train": (IMAGES, LABELS)},
}


@pytest.mark.parametrize("data", SAME_IMAGES.values(), ids=list(SAME_IMAGES))
def test_images_are_what_numpy_holds(tmp_path: Path, data: Any) -> None:
    found = raw(tmp_path, data).train
    assert found.images.dtype == np.uint8 and np.array_equal(found.images, IMAGES)
    assert found.labels.dtype == np.int64 and found.labels.tolist() == LABELS.tolist()
    assert {file.suffix for file in (tmp_path / "mine" / "data").iterdir()} == {".npy", ".json"}


SAME_ROWS: dict[str, Any] = {
    "arrays": (ROWS, LABELS),
    "float64": (ROWS.astype(np.float64), LABELS.astype(float)),
    "tensors": (torch.tensor(ROWS), torch.tensor(LABELS)),
    "a frame": (pd.DataFrame(ROWS), pd.Series(LABELS)),
    "one by one": of_torch.TensorDataset(torch.tensor(ROWS), torch.tensor(LABELS)),
}


@pytest.mark.parametrize("data", SAME_ROWS.values(), ids=list(SAME_ROWS))
def test_rows_are_what_numpy_holds(tmp_path: Path, data: Any) -> None:
    found = raw(tmp_path, data)
    assert found.train.images.dtype == np.float32 and np.array_equal(found.train.images, ROWS)
    assert found.columns == ()


def test_a_frame_of_numbers_and_truths_has_names(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [41, 7, 30, 52], "is_ill": [True, False, True, False]})
    found = raw(tmp_path, (frame, [0, 1, 0, 1]))
    assert found.columns == ("age", "is_ill")
    assert found.train.images.tolist() == [[41, 1], [7, 0], [30, 1], [52, 0]]


def test_words_are_numbered_in_order(tmp_path: Path) -> None:
    found = raw(tmp_path, {"train": (ROWS, WORDS), "test": (ROWS[:6], WORDS[:6].tolist())})
    assert found.classes == ("ant", "cat", "dog") and found.test is not None
    assert [found.classes[label] for label in found.test.labels] == WORDS[:6].tolist()


def test_numbers_in_an_array_of_objects_are_labels(tmp_path: Path) -> None:
    mixed = np.array([int(one) if one else 0.0 for one in LABELS], dtype=object)
    found = raw(tmp_path, (ROWS, mixed))
    assert np.array_equal(found.train.labels, LABELS)


def test_the_names_of_classes(tmp_path: Path) -> None:
    assert raw(tmp_path / "hub", Hub()).classes == ("ant", "bee", "cat")
    items = Named(lambda i: (photo(i), int(LABELS[i])))
    some = of_torch.Subset(items, range(30))  # it has no dogs
    assert raw(tmp_path / "torchvision", some).classes == ("ant", "bee", "cat")
    given = {"train": items, "classes": ("x", "y", "z")}
    assert raw(tmp_path / "given", given).classes == ("x", "y", "z")


def test_grayscale_is_one_channel_unless_an_image_has_colour(tmp_path: Path) -> None:
    gray = Photos(lambda i: (photo(i, "L"), LABELS[i]))
    assert raw(tmp_path / "gray", gray).train.images.shape == (60, 1, 8, 6)
    some = Photos(lambda i: (photo(i, "L" if i < 40 else "RGB"), LABELS[i]))
    found = raw(tmp_path / "both", {"train": some, "test": gray})
    assert np.array_equal(found.train.images[40:], IMAGES[40:]) and found.test is not None
    assert np.array_equal(found.train.images[3], np.stack([np.asarray(photo(3, "L"))] * 3))
    assert found.test.images.shape == (60, 3, 8, 6)


@pytest.mark.parametrize("mode", ["P", "RGBA", "1", "LA"])
def test_other_modes_are_as_in_files(tmp_path: Path, mode: str) -> None:
    found = raw(tmp_path, Photos(lambda i: (photo(i, mode), LABELS[i]))).train.images
    usual = photo(5, mode).convert("L" if mode in ("1", "LA") else "RGB")
    assert np.array_equal(found[5].transpose(1, 2, 0).squeeze(), np.asarray(usual))


def test_splits_and_options(tmp_path: Path) -> None:
    splits = DatasetDict(train=Hub(), validation=Hub(12), test=Hub(30))
    found = raw(tmp_path / "hub", splits)
    assert found.validation is not None and found.test is not None
    assert (len(found.validation.labels), len(found.test.labels)) == (12, 30)
    options = {"name": "arrays", "validation": 0.3, "augment": "flip", "limit": 30}
    data = created(tmp_path, {**options, "train": (IMAGES, LABELS)}).spec.data
    assert (data.validation, data.augment, len(data.read().train.labels)) == (0.3, "flip", 30)
    named = {"train": Hub(), "image": "picture", "label": "label"}
    assert raw(tmp_path / "named", named).classes == ("ant", "bee", "cat")


# ---- what is refused -----------------------------------------------------------------------------

TO_TENSOR = transforms.ToTensor()
FLIPPED = transforms.RandomHorizontalFlip()
TEXT = pd.DataFrame(ROWS, columns=list("abcde")).assign(t="x")

REFUSED: dict[str, tuple[Any, str]] = {
    "ToTensor": (
        Photos(lambda i: (TO_TENSOR(photo(i)), 0)),
        r"item 0: images are float32 \[3, 8, 6\], not uint8. Leave out ToTensor and Normalize",
    ),
    "float arrays": ((IMAGES / 255, LABELS), "not uint8. Give the pixels as uint8, 0 to 255"),
    "int64": ((IMAGES.astype(int), LABELS), "images are int64 .* not uint8. Give the pixels"),
    "a random transform": (
        Photos(lambda i: (FLIPPED(photo(i)), LABELS[i])),
        "is not the same when it is read again. Take random transforms out: .*`augment`",
    ),
    "random labels": (
        Photos(lambda i: (photo(i), np.random.default_rng().integers(1000))),
        "is not the same when it is read again",
    ),
    "other sizes": (
        Photos(lambda i: (photo(i).resize((6 + i // 59, 8)), LABELS[i])),
        r"item 59 is 7x8 pixels in 3 channels, item 0 of train is 6x8 .*Resize\(\(8, 6\)\)",
    ),
    "16 bits": (
        Photos(lambda i: (Image.fromarray(IMAGES[i, 0].astype(np.uint16)), 0)),
        r"item 0: the image has more than 8 bits per channel \(mode I;16\). Convert it",
    ),
    "channels last": (
        (IMAGES.transpose(0, 2, 3, 1), LABELS),
        r"their channels are last. Put them first: .*transpose\(0, 3, 1, 2\)",
    ),
    "no channels": ((IMAGES[:, 0], LABELS), r"without channels. Write images\[:, None\]"),
    "a loader": (
        of_torch.DataLoader(of_torch.TensorDataset(torch.tensor(ROWS), torch.tensor(LABELS))),
        "of type DataLoader, which draws batches. Give its data set: loader.dataset",
    ),
    "an iterable": (Endless(), "of type Endless, which has no i-th sample. Give a pair"),
    "a generator": ((i for i in range(3)), "of type generator, which has no i-th sample"),
    "a class": (Photos, r"is the class Photos. Give an instance: Photos\(...\)"),
    "no labels": (IMAGES, "of type ndarray, without labels. Give a pair"),
    "a bunch": (load_iris(), r"of type Bunch. Give a pair: \(bunch.data, bunch.target\)"),
    "sparse": ((sparse.csr_matrix(ROWS), LABELS), "sparse csr_matrix. Give its toarray()"),
    "bfloat16": ((torch.zeros(60, 5, dtype=torch.bfloat16), LABELS), "torch.bfloat16 is no"),
    "text": ((TEXT, LABELS), "the column 't' holds other than numbers. Encode text"),
    "too large": ((ROWS.astype(float) * 1e300, LABELS), "row 0, column 0: .* is beyond float32"),
    "other lengths": (Photos(lambda i: (ROWS[i, : 5 - i // 59], 0)), "item 59 is a row of 4"),
    "fewer labels": ((IMAGES, LABELS[1:]), "60 samples with 59 labels"),
    "empty": ((IMAGES[:0], LABELS[:0]), "has no samples"),
    "negative": ((IMAGES, LABELS - 1), "item 0: the label is -1. Labels start at 0"),
    "one class": ((IMAGES, LABELS * 0), "all samples are of one class, '0'"),
    "half a label": ((IMAGES, LABELS + 0.5), "item 0: the label is 0.5, no whole number"),
    "one-hot": ((IMAGES, np.eye(3)[LABELS]), r"labels are float64 \[60, 3\]"),
    "no label": ((IMAGES, [None] * 60), "item 0: the label is a NoneType"),
    "no fourth label": ((IMAGES, [0, 1, 2, None] * 15), "item 3: the label is a NoneType"),
    "no fourth word": ((IMAGES, ["a", "b", "a", None] * 15), "item 3: the label is a NoneType"),
    "no label of an item": (
        Photos(lambda i: (ROWS[i], None if i == 3 else 0)),
        "train: item 3: the label is a NoneType",
    ),
    "a word among numbers": ((IMAGES, [0, None, "a", 1] * 15), "item 1: the label is a NoneType"),
    "words and numbers": (Photos(lambda i: (ROWS[i], "a" if i else 0)), "some labels are words"),
    "an error": (
        Photos(lambda i: 1 / 0),
        r"item 0 cannot be read \(ZeroDivisionError: .*, test_objects.py:\d+\)",
    ),
    "three": (Photos(lambda i: (1, 2, 3)), r"item 0: is a tuple of 3. Give \(sample, label\)"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_data_is_refused_and_leaves_nothing(
    tmp_path: Path, data: Any, message: str
) -> None:
    with pytest.raises(SpecError, match=message) as raised:
        created(tmp_path, data)
    assert raised.value.path == "data.train" and raised.value.mend
    assert not any(tmp_path.iterdir())


PAIR = (IMAGES, LABELS)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "few classes": ({"train": PAIR, "classes": ["a", "b"]}, "train: item 2: the label is 2, the"),
    "many classes": ({"train": PAIR, "classes": list("abcd")}, r"no sample has label 3 \('d'\)"),
    "equal classes": ({"train": PAIR, "classes": ["a", "a", "b"]}, "classes: must be a list of"),
    "a new word": (
        {"train": (ROWS, WORDS), "test": (ROWS[:1], ["cow"])},
        "test: item 0: the label is 'cow', the classes are ant, cat, dog",
    ),
    "numbers for words": (
        {"train": (ROWS, WORDS), "test": (ROWS, LABELS)},
        "test: its labels are numbers, those of train words",
    ),
    "other samples": ({"train": PAIR, "test": (ROWS, LABELS)}, "Give all splits samples of one"),
    "a smaller test": ({"train": PAIR, "test": (IMAGES[..., :4], LABELS)}, "each sample is 4x8"),
    "no train": ({"test": PAIR}, "train: is missing in a dict"),
    "a name": ({"train": "cifar10"}, "train: is of type str, which has no i-th sample"),
    "an option": ({"train": PAIR, "augmnt": "flip"}, "augmnt: there is no key .*'augment'"),
    "a value": ({"train": PAIR, "augment": "flp"}, "augment: there is no 'flp'"),
    "another data set": ({"train": PAIR, "name": "table"}, "name: 'table' reads files"),
    "a path": ({"train": PAIR, "path": "here"}, "path: is where calstudy writes"),
    "a column": ({"train": Hub(), "image": "pictur"}, "no column 'pictur'. Did you mean 'picture'"),
    "fewer groups": (
        {"train": PAIR, "groups": [1, 2]},
        r"groups.train: are int64 \[2\], the split",
    ),
    "no groups": (
        {"train": PAIR, "test": PAIR, "groups": LABELS},
        "groups: test has none. Give all splits some: {'train': ",
    ),
    "floats": ({"train": PAIR, "groups": LABELS / 2}, "groups.train: item 0: the group is 0.0"),
    "one group": ({"train": PAIR, "groups": ["a"] * 60}, "groups: all samples are of one group"),
    "spaces": ({"train": PAIR, "groups": ["a", "a "] * 30}, "groups: text: 'a ' and 'a' differ"),
    "a lost group": (
        {"train": PAIR, "groups": {"train": LABELS, "tst": LABELS}},
        "groups.tst: there is no such split",
    ),
    "a split": (DatasetDict(train=Hub(), val=Hub()), "val: there is no key 'val'. .*'validation'"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=list(WRONG))
def test_wrong_keys_of_data(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=rf"^data\..*{message}"):
        created(tmp_path, data)
    assert not any(tmp_path.iterdir())


def test_other_keys_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'focal'"):
        created(tmp_path, PAIR, methods=["focl"])
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "cnn"}, r"^model: cnn takes images, the data are rows of 5 numbers. Write mod"),
        (
            {"data": {"train": (ROWS, LABELS), "augment": "flip"}},
            r"^data.augment: flip is for imag",
        ),
    ],
)
def test_what_rows_do_not_have_is_refused_before_they_are_written(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        created(tmp_path, **{"data": (ROWS, LABELS), **keys})
    assert not any(tmp_path.iterdir())


def test_a_storage_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match=r"storage: .*file is a file, where a folder is needed"):
        created(tmp_path / "file", PAIR)


class MyLoss(torch.nn.Module):
    """Somebody's loss."""


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"methods": [MyLoss]}, r"methods\[0\]: MyLoss is no Method. Give a Method, or a function"),
        ({"methods": [{"name": MyLoss()}]}, r"methods\[0\].name: must be a name, got a MyLoss"),
        (
            {"model": MyLoss()},
            "model: must be a name, got a MyLoss. Write a network's name, or",
        ),
    ],
)
def test_an_object_is_no_name(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        created(tmp_path, "digits", **keys)


# ---- written once --------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in (folder / "mine" / "data").iterdir()}


def test_the_same_script_writes_nothing_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    created(tmp_path, PAIR)
    assert capsys.readouterr().out == f"data written to {tmp_path / 'mine' / 'data'}: train 60\n"
    before = files(tmp_path)
    created(tmp_path, SAME_IMAGES["PIL images"])  # the same bytes
    assert files(tmp_path) == before and capsys.readouterr().out == ""


def test_before_the_study_begins_other_data_replace_them(tmp_path: Path) -> None:
    created(tmp_path, PAIR)
    assert np.array_equal(raw(tmp_path, (ROWS, LABELS)).train.images, ROWS)


KILLED = """
import os, signal
from pathlib import Path
import numpy as np
from study import Study

class Photos:  # a sequence of arrays: the process needs nothing that takes seconds to import
    def __len__(self):
        return 60

    def __getitem__(self, place):
        if place == {place} and any(Path("{folder}").rglob("train.npy.*")):
            os.kill(os.getpid(), signal.SIGKILL)
        return IMAGES[place], place % 3

IMAGES = np.random.default_rng(0).integers(0, 256, (60, 3, 8, 6), dtype=np.uint8)
Study.create(name="mine", data=Photos(), model="mlp", methods=["focal"], storage=Path("{folder}"))
"""


def test_killed_while_it_writes_the_same_script_goes_on(tmp_path: Path) -> None:
    script = KILLED.format(place=37, folder=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert any(".partial" in name for name in left) and "mine/data" not in left
    found = raw(tmp_path, SAME_IMAGES["PIL images"])
    assert np.array_equal(found.train.images, IMAGES)
    assert {os.path.basename(path) for path in tmp_path.rglob("*") if path.is_dir()} == {
        "mine",
        "data",
    }


def test_interrupted_while_it_writes_nothing_is_left(tmp_path: Path) -> None:
    def item(place: int) -> Any:
        if place == 37 and any(tmp_path.rglob("train.npy.*")):
            raise KeyboardInterrupt
        return photo(place), LABELS[place]

    with pytest.raises(KeyboardInterrupt):
        created(tmp_path, Photos(item))
    assert not any(tmp_path.iterdir())


def test_half_a_folder_is_not_taken_for_whole(tmp_path: Path) -> None:
    created(tmp_path, PAIR)
    (tmp_path / "mine" / "data" / "arrays.json").unlink()
    assert np.array_equal(raw(tmp_path, PAIR).train.images, IMAGES)
