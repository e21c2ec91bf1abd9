"""Every name an extension's data set may import; a few of them make one."""
# ruff: noqa: F401

import hashlib
from dataclasses import dataclass

import numpy as np

from trainables import Dataset, Header, RawData, RawSplit, Samples, Words, number


@dataclass(frozen=True)
class Listed(Dataset):
    """Grey images 8x8; those of the second class are brighter."""

    samples_of_each: int = number(50, low=5, doc="class")

    def source_digest(self) -> str:
        return hashlib.sha256(str(self.samples_of_each).encode()).hexdigest()

    def read(self) -> RawData:
        labels = np.repeat(np.arange(2), self.samples_of_each)
        pixels = np.random.default_rng(0).integers(0, 128, (len(labels), 1, 8, 8))
        return RawData(
            ("dark", "bright"),
            RawSplit((pixels + 100 * labels[:, None, None, None]).astype(np.uint8), labels),
        )
