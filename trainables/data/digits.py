"""Handwritten digits, 8x8, grey: Alpaydin & Kaynak 1998, the 1,797 images that scikit-learn brings along."""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from trainables.dataset import Dataset, RawData, RawSplit


@dataclass(frozen=True)
class Digits(Dataset):
    """[1797, 1, 8, 8], pixels 0 to 16, ten classes. The source has no splits: test and validation are carved by seed."""

    def source_digest(self) -> str:
        # Importing scikit-learn takes seconds; its file can be found and hashed without.
        package = find_spec("sklearn")
        assert package is not None and package.origin is not None, "scikit-learn is a dependency"
        source = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
        return hashlib.sha256(source.read_bytes()).hexdigest()

    def read(self) -> RawData:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = digits.images.astype(np.uint8)[:, None]
        return RawData(tuple("0123456789"), RawSplit(images, digits.target.astype(np.int64)))
