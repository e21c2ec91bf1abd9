"""Handwritten digits, 8x8, grayscale: scikit-learn's 1,797 images. Alpaydin & Kaynak 1998."""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from trainables.dataset import Dataset, Header, RawData, RawSplit
from trainables.plain import Value

CLASSES = tuple("0123456789")


def _source() -> Path:
    """scikit-learn's file, located without importing scikit-learn, which takes seconds."""
    package = find_spec("sklearn")
    assert package is not None and package.origin is not None, "scikit-learn is a dependency"
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


@dataclass(frozen=True)
class Digits(Dataset):
    """[1797, 1, 8, 8], pixels 0 to 16, ten classes. The test split is carved by seed."""

    def source_digest(self) -> str:
        return hashlib.sha256(_source().read_bytes()).hexdigest()

    def read(self) -> RawData:
        # A row: 64 pixels and the label.
        rows = np.loadtxt(_source(), delimiter=",", dtype=np.uint8)
        images = rows[:, :-1].reshape(-1, 1, 8, 8)
        return RawData(CLASSES, RawSplit(images, rows[:, -1].astype(np.int64)))

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        self._refuse_where(where)
        return Header(self.source_rows(), (1, 8, 8), np.arange(10), dict(enumerate(CLASSES)))
