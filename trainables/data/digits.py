"""Handwritten digits, 8x8, grayscale: the 1,797 images included in scikit-learn. Alpaydin & Kaynak 1998."""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from trainables.dataset import Dataset, Header, RawData, RawSplit

CLASSES = tuple("0123456789")


def _source() -> Path:
    """scikit-learn's file, located without importing scikit-learn, which takes seconds."""
    package = find_spec("sklearn")
    assert package is not None and package.origin is not None, "scikit-learn is a dependency"
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


@dataclass(frozen=True)
class Digits(Dataset):
    """[1797, 1, 8, 8], pixels 0 to 16, ten classes. The source has no test split; one is carved by seed."""

    def source_digest(self) -> str:
        return hashlib.sha256(_source().read_bytes()).hexdigest()

    def read(self) -> RawData:
        # A row: 64 pixels and the label.
        rows = np.loadtxt(_source(), delimiter=",", dtype=np.uint8)
        images, labels = rows[:, :-1].reshape(-1, 1, 8, 8), rows[:, -1].astype(np.int64)
        return RawData(CLASSES, RawSplit(images, labels))

    def samples_header(self, where: dict[str, Any] | None = None) -> Header:
        self._refuse_where(where)
        return Header(self.source_rows(), (1, 8, 8), np.arange(10), dict(enumerate(CLASSES)))
