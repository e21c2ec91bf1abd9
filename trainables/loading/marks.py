"""Masks in a cache: the classes that images have, and the pixels that are rows of predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from trainables.problems import FieldError
from trainables.seeding import stream

MOST = 1024  # rows of an image
LEAST = 64
MOST_ROWS = 2**18  # of a split, where that leaves LEAST of an image


def classes_in(images: np.ndarray, classes: int) -> np.ndarray:
    """[N, K] bool: whether an image has pixels of a class. images: uint8 [N, C + 1, H, W]."""
    found = np.zeros((len(images), classes), dtype=bool)
    for row, image in enumerate(images):
        found[row] = np.bincount(image[-1].reshape(-1), minlength=classes + 1)[1:] > 0
    return found


def pairs_of(present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An image and one of its classes, for each: two arrays [P]. Of one without any, the number of
    classes. present: [N, K], of `classes_in`."""
    images, classes = np.nonzero(np.column_stack([present, ~present.any(axis=1)]))
    return images, classes


def check_classes(present: dict[str, np.ndarray], classes: Sequence[str]) -> tuple[str, ...]:
    """What `plan` says of classes that a split lacks, and of images without a labelled pixel.

    present: `classes_in` of each split. Raises FieldError for a class that train lacks.
    """
    for number, name in enumerate(classes):
        if not present["train"][:, number].any():
            mend = "Add such an image to train, or leave the class out."
            raise FieldError("", f"no pixel of train is of the class '{name}'", mend)
    notes = []
    for split, found in present.items():
        absent = [name for number, name in enumerate(classes) if not found[:, number].any()]
        if absent:
            notes.append(f"{split} has no pixel of {', '.join(absent)}")
        empty = int((~found.any(axis=1)).sum())
        if empty == len(found):
            raise FieldError("", f"no image of {split} has a labelled pixel", "Label some.")
        if empty:
            has, they = ("has", "it is") if empty == 1 else ("have", "they are")
            images = f"{empty:,} image{'s' * (empty != 1)} of {split} {has} no labelled pixel"
            notes.append(f"{images}: {they} in no loss and no prediction")
    return tuple(notes)


def labelled_shares(images: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest share of labelled pixels in an image."""
    shares = [float((image[-1] > 0).mean()) for image in images]
    return min(shares), max(shares)


def rows_of(images: np.ndarray, seed: int, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Where the rows of predictions are, [R, 2] int64 as `Positions`, and their labels, [R].

    At most MOST labelled pixels of each image, drawn by seed: so every image weighs the same that
    has as many.
    """
    most = max(LEAST, min(MOST, MOST_ROWS // len(images)))
    positions = []
    labels = []
    for row, image in enumerate(images):
        mask = image[-1].reshape(-1)
        places = np.flatnonzero(mask)
        if len(places) > most:
            generator = stream(seed, "positions", split, row)
            chosen = torch.randperm(len(places), generator=generator)[:most].numpy()
            places = places[np.sort(chosen)]
        positions.append(np.column_stack([np.full(len(places), row), places]))
        labels.append(mask[places].astype(np.int64) - 1)
    return np.concatenate(positions).astype(np.int64), np.concatenate(labels)
