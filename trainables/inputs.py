"""What a sample is: its shape, and its kind, which alone knows how it is stored, normalised and
called."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from trainables.kinds import KINDS, NOUNS, Kind
from trainables.problems import FieldError

DTYPES: dict[Kind, np.dtype] = {
    "image": np.dtype(np.uint8),
    "features": np.dtype(np.float32),
    "words": np.dtype(np.int32),
    "trees": np.dtype(np.int32),
}
DIMENSIONS: dict[Kind, int] = {"image": 4, "features": 2, "words": 2, "trees": 3}  # of samples
SHAPES = {
    "image": "uint8 [N, C, H, W]",
    "features": "float32 [N, D]",
    "words": "int32 [N, L]",
    "trees": "int32 [N, M, 5]",
}
WORDED: tuple[Kind, ...] = ("words", "trees")  # kinds whose numbers are words of a vocabulary
NODE = 4  # numbers of a tree's node: word, left, right, height
ROWS = 4096  # read at a time for statistics
PIXELS = 2**24  # of a channel; counting takes eight bytes for each


class Inputs(tuple[int, ...]):
    """The shape of one sample, with its kind.

    image: (channels, height, width) of uint8. features: (columns,) of float32, a row of numbers.
    words: (length,) of int32, the numbers of a text's words: 0 pads, 1 is a word outside the
    vocabulary. trees: (nodes, 4) of int32, in post-order: a leaf's word; of another node the rows
    of its two children, from 1; its height, 0 of a leaf. A row of zeros pads.

    An image with a mask is `marked`: the mask is one more channel, the last, of each pixel's class
    + 1, and 0 where it has none. It moves with the image, and no network sees it. So does a fifth
    number of each node of a tree, its label + 1.
    """

    kind: Kind
    columns: tuple[str, ...]  # the names of a row's numbers; empty if they have none
    marked: bool
    words: int  # numbers of the vocabulary, 0 and 1 included; 0: samples are no words
    vectors: int  # numbers of a word's vector, of a file; 0: there is none

    def __new__(
        cls,
        shape: Sequence[int],
        kind: Kind = "image",
        columns: Sequence[str] = (),
        marked: bool = False,
        words: int = 0,
        vectors: int = 0,
    ) -> Inputs:
        made = super().__new__(cls, shape)
        made.kind = kind
        made.columns = tuple(columns)
        made.marked = marked
        made.words = words
        made.vectors = vectors
        return made

    def __getnewargs__(self) -> tuple[tuple[int, ...], Kind, tuple[str, ...], bool, int, int]:
        return tuple(self), self.kind, self.columns, self.marked, self.words, self.vectors

    @classmethod
    def of_samples(cls, samples: Tensor, marked: bool = False) -> Inputs:
        """Those of samples that a cache holds."""
        kind: Kind = "image" if samples.dim() == 4 else "features"
        if samples.dtype == torch.int32:
            kind = "words" if samples.dim() == 2 else "trees"
        return cls._without_labels(samples.shape[1:], kind, (), marked)

    @classmethod
    def of(cls, samples: np.ndarray, columns: Sequence[str] = (), marked: bool = False) -> Inputs:
        """Those of an array of samples. Raises FieldError unless a kind has its type and shape."""
        for kind in KINDS:
            if samples.dtype == DTYPES[kind] and samples.ndim == DIMENSIONS[kind]:
                return cls._without_labels(samples.shape[1:], kind, columns, marked)
        found = f"samples are {samples.dtype} {list(samples.shape)}"
        *first, last = SHAPES.values()
        raise FieldError("", f"{found}; a data set gives {', '.join(first)} or {last}")

    @classmethod
    def _without_labels(
        cls, shape: Sequence[int], kind: Kind, columns: Sequence[str], marked: bool
    ) -> Inputs:
        if kind == "trees":
            return cls((shape[0], NODE), kind)
        return cls((shape[0] - marked, *shape[1:]), kind, columns, marked)

    @property
    def noun(self) -> str:
        """What samples are called: images, rows, texts, or trees."""
        return NOUNS[self.kind]

    @property
    def shown(self) -> str:
        """`3x32x32 images`, `rows of 200 numbers`, `texts of up to 400 words`."""
        if self.kind == "image":
            masks = " with masks" if self.marked else ""
            return f"{'x'.join(map(str, self))} images{masks}"
        what = {"words": "up to # words", "trees": "up to # nodes"}.get(self.kind, "# numbers")
        what = what if self[0] != 1 else what.removesuffix("s")
        return f"{self.noun} of {what.replace('#', f'{self[0]:,}')}"

    @property
    def are_named(self) -> bool:
        """Whether each number of a row has a name."""
        return self.kind == "features" and len(self.columns) == self[0]

    @property
    def carry_labels(self) -> bool:
        """Whether a sample in the cache has a label for each pixel, or node, in it."""
        return self.marked or self.kind == "trees"

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape of one sample in the cache."""
        if self.kind == "trees":
            return (self[0], NODE + 1)
        return (self[0] + self.marked, *self[1:])

    @property
    def size(self) -> int:
        """The bytes of one sample in the cache."""
        return math.prod(self.stored) * DTYPES[self.kind].itemsize

    def statistics(self, samples: np.ndarray, rows: np.ndarray) -> dict[str, list[float]]:
        """mean and std of these rows, per channel or column; of words, which are no quantities, 0
        and 1."""
        if self.kind in WORDED:
            return {"mean": [0.0], "std": [1.0]}
        if self.kind == "image":
            return _of_pixels(samples[:, : self[0]], rows)
        return _of_columns(samples, np.sort(rows))


def across(values: Sequence[float], kind: Kind, device: torch.device | str = "cpu") -> Tensor:
    """Values per channel or column, shaped to meet samples [N, ...]."""
    found = torch.tensor(values, dtype=torch.float32, device=device)
    if kind == "image":
        return found[:, None, None]
    return found


def _of_pixels(images: np.ndarray, rows: np.ndarray) -> dict[str, list[float]]:
    """Exact mean and deviation per channel over the rows' pixels, by counts of the 256 values."""
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    step = max(1, min(ROWS, PIXELS // math.prod(images.shape[2:])))
    for start in range(0, len(rows), step):
        chunk = images[rows[start : start + step]]
        for channel in range(images.shape[1]):
            counts[channel] += np.bincount(chunk[:, channel].reshape(-1), minlength=256)
    values = np.arange(256.0)
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ values
    std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1))
    # A constant channel has std 0; dividing by 1 keeps it finite.
    return {"mean": mean.tolist(), "std": np.where(std > 0, std, 1.0).tolist()}


def _of_columns(table: np.ndarray, rows: np.ndarray) -> dict[str, list[float]]:
    """Mean and deviation of each column, in float64, in the order of the rows.

    A constant column (its minimum is its maximum, or float32 has no such deviation) has an infinite
    one: it becomes 0, in samples where it has another value too, as no weight was trained on it.
    """
    parts = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
    low = np.full(table.shape[1], np.inf)
    high = np.full(table.shape[1], -np.inf)
    total = np.zeros(table.shape[1])
    for part in parts:
        chunk = table[part].astype(np.float64)
        total += chunk.sum(axis=0)
        low = np.minimum(low, chunk.min(axis=0))
        high = np.maximum(high, chunk.max(axis=0))
    mean = np.where(low == high, low, total / len(rows))
    squares = np.zeros(table.shape[1])
    for part in parts:
        squares += ((table[part].astype(np.float64) - mean) ** 2).sum(axis=0)
    std = np.sqrt(squares / len(rows))
    is_constant = (low == high) | (std.astype(np.float32) == 0)
    return {"mean": mean.tolist(), "std": np.where(is_constant, np.inf, std).tolist()}
