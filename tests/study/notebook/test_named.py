"""Which column holds the samples and which the labels; keys that are nearly right."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from study.schema.errors import SpecError
from tests.study.notebook.test_objects import IMAGES, LABELS, PAIR, Endless, Hub, created, photo


def feature(name: str, **values: Any) -> Any:
    """Duck-typed as a feature of Hugging Face."""
    return type(name, (), values)()


TEXT = feature("Value", dtype="string")
WHOLE = feature("Value", dtype="int64")
PICTURE = feature("Image")
CLASSES = feature("ClassLabel", names=["ant", "bee"], dtype="int64")
ROWS = feature("List", feature=feature("Value", dtype="float32"))


def hub(**features: Any) -> Hub:
    found = Hub()
    found.features = features
    found.column_names = list(features)
    return found


class Streamed(Endless):
    features: Any = None


Streamed.__name__ = "IterableDataset"

GRAY = [{"image": IMAGES[place, 0], "label": LABELS[place]} for place in range(60)]
REFUSED: dict[str, tuple[Any, str]] = {
    "classes": (
        hub(id=WHOLE, picture=PICTURE, kind=CLASSES),
        "train: no column is called label or labels; there are id (whole numbers), picture"
        " (images), kind (classes). Name it in a dict: {'train': ..., 'label': 'kind'}.",
    ),
    "two of whole numbers": (
        hub(id=WHOLE, picture=PICTURE, age=WHOLE),
        "train: no column is called label or labels; there are id (whole numbers), picture"
        " (images), age (whole numbers). Name it in a dict: {'train': ..., 'label': '...'}.",
    ),
    "text": (
        hub(text=TEXT, label=CLASSES),
        "train: no column is called image or img; there are text (text), label (classes)."
        " Give images or rows of numbers; encode text.",
    ),
    "rows": (
        hub(weight=feature("Value", dtype="float64"), rows=ROWS, label=CLASSES),
        "there are weight (float64), rows (rows of numbers), label (classes). Name it in a dict:"
        " {'train': ..., 'image': 'rows'}.",
    ),
    "dicts": (
        [{"picture": photo(0), "kind": 0}],
        "there are picture (images), kind (whole numbers). Name it in a dict: {'train': ...,"
        " 'label': 'kind'}.",
    ),
    "dicts of rows": (
        [{"rows": torch.zeros(3), "label": "ant", "note": "x"}],
        "there are rows (rows of numbers), label (text), note (text). Name it in a dict:"
        " {'train': ..., 'image': 'rows'}.",
    ),
    "grayscale as NumPy": (GRAY, "without channels. Give [1, H, W]: image[None]. Of Hugging Face,"),
    "streaming": (Streamed(), "which has no i-th sample. Load it without streaming=True."),
    "Train": ({"Train": PAIR}, "Train: there is no key 'Train'. Did you mean 'train'?"),
    "training": ({"training": PAIR}, "training: there is no key 'training'. Did you mean 'train'?"),
    "val": ({"val": PAIR}, "val: there is no key 'val'. Did you mean 'validation'?"),
    "VALID": ({"train": PAIR, "VALID": PAIR}, "no key 'VALID'. Did you mean 'validation'?"),
    "x and y": (
        {"x": IMAGES, "y": LABELS},
        "x: there is no key 'x'. Give {'train': ...}, or a pair (samples, labels).",
    ),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_refused(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        created(tmp_path, data)
    assert message in str(raised.value) and str(raised.value).startswith("data.")
    assert not any(tmp_path.iterdir())


def test_the_only_images_of_dicts_are_found(tmp_path: Path) -> None:
    items = [{"picture": photo(place), "label": int(LABELS[place])} for place in range(60)]
    found = created(tmp_path, items).spec.data.read().train
    assert np.array_equal(found.images, IMAGES)


def test_an_optimizer_is_settings(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r'got the class Adam\. Write {"name": "adam", "lr": 0.001}'
    ):
        created(tmp_path, "digits", optimizer=torch.optim.Adam)
    with pytest.raises(SpecError, match=r"settings, got 'adam'\. Write {name: adam}\."):
        created(tmp_path, "digits", optimizer="adam")
