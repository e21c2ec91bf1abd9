"""The columns of a data set by name: which holds the samples, and which the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from trainables.problems import FieldError, nearest

IMAGES = ("image", "img")  # what a column of images is called
LABELS = ("label", "labels")
PICTURE = "images"
NUMBERS = "rows of numbers"
CLASSES = "classes"
WHOLE = "whole numbers"
TEXT = "text"
# What a column must hold, the likeliest first.
FITTING = {"image": (PICTURE, NUMBERS), "label": (CLASSES, WHOLE, TEXT)}
SHOWN = 10  # columns in a message
NESTED = ("Sequence", "List", "LargeList", "Array2D", "Array3D")  # of Hugging Face


class Columns(NamedTuple):
    """The columns of a data set by name, as the user gives them."""

    image: str | None = None
    label: str | None = None


def columns_of(kinds: Mapping[str, str], given: Columns) -> Columns:
    """The columns that the user names, or else that are called as usual. Raises FieldError.

    kinds: what each column holds.
    """
    pictures = [name for name, kind in kinds.items() if kind == PICTURE]
    usual = IMAGES if len(pictures) != 1 else (*IMAGES, *pictures)
    return Columns(
        _column("image", given.image, usual, kinds), _column("label", given.label, LABELS, kinds)
    )


def _column(what: str, named: str | None, usual: Sequence[str], kinds: Mapping[str, str]) -> str:
    if named is not None:
        if named not in kinds:
            raise FieldError("", f"there is no column '{named}'", nearest(named, kinds))
        return named
    for name in usual:
        if name in kinds:
            return name
    there = [f"{name} ({kind})" for name, kind in list(kinds.items())[:SHOWN]]
    found = f"no column is called {' or '.join(usual)}; there are {', '.join(there)}"
    fitting = [[name for name in kinds if kinds[name] == kind] for kind in FITTING[what]]
    likely = next(filter(None, fitting), [])
    if what == "image" and not likely:
        raise FieldError("", found, "Give images or rows of numbers; encode text.")
    name = likely[0] if len(likely) == 1 else "..."
    raise FieldError("", found, f"Name it in a dict: {{'train': ..., '{what}': '{name}'}}.")


# ---- what a column holds -------------------------------------------------------------------------


def kinds_of(dataset: Any) -> dict[str, str]:
    """What each column of a Hugging Face data set holds, by its features."""
    return {name: _kind_of_feature(dataset.features[name]) for name in dataset.column_names}


def _kind_of_feature(feature: Any) -> str:
    name = type(feature).__name__
    if name == "Image":
        return PICTURE
    if name == "ClassLabel":
        return CLASSES
    dtype = str(getattr(getattr(feature, "feature", feature), "dtype", name))
    is_number = dtype.startswith(("int", "uint", "float", "bool"))
    if name in NESTED:
        return NUMBERS if is_number else f"lists of {dtype}"
    if "string" in dtype:
        return TEXT
    return WHOLE if is_number and "float" not in dtype else dtype


def kind_of_value(value: Any) -> str:
    """What a column holds that has such a value."""
    if isinstance(value, Image.Image):
        return PICTURE
    if isinstance(value, str):
        return TEXT
    dtype = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
    if len(getattr(value, "shape", ())) >= 3:
        return PICTURE
    if len(getattr(value, "shape", ())) or isinstance(value, list):
        return NUMBERS
    if isinstance(value, int | np.integer) or dtype.startswith(("int", "uint", "bool")):
        return WHOLE
    return dtype


def class_names(dataset: Any, columns: Columns) -> Sequence[str]:
    """The names that a Hugging Face data set has for its labels."""
    label = dataset.features[columns.label]
    return tuple(map(str, getattr(label, "names", None) or ()))
