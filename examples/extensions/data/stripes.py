"""A data set of your own: noisy horizontal and vertical stripes, 8x8, grayscale. An example."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainables import Dataset, RawData, RawSplit, number


@dataclass(frozen=True)
class Stripes(Dataset):
    size: int = number(600, low=20, doc="number of images")

    def source_digest(self) -> str:
        return hashlib.sha256(Path(__file__).read_bytes() + str(self.size).encode()).hexdigest()

    def read(self) -> RawData:
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 2, self.size)
        rows = 128 + 40 * np.cos(np.pi * np.arange(8))
        stripes = np.where(labels[:, None, None] == 0, rows[:, None], rows)
        images = stripes + rng.normal(0, 60, (self.size, 8, 8))
        return RawData(
            ("horizontal", "vertical"),
            RawSplit(images.clip(0, 255).astype(np.uint8)[:, None], labels),
        )
