"""Made-up texts of two classes: some words are of one class, most of both."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

COMMON = ["the", "a", "of", "and", "film", "plot", "scene", "actor", "music", "time"]
OWN = [["dull", "weak", "empty", "slow"], ["fine", "warm", "bright", "sharp"]]


def made_texts(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """text, y and split: four words of both classes and two of its own, now and then a rare one."""
    random = np.random.default_rng(seed)
    texts = []
    labels = random.integers(0, 2, rows)
    for row, label in enumerate(labels):
        words = [*random.choice(COMMON, 6), *random.choice(OWN[label], 2), f"rare{row}"]
        texts.append(" ".join(random.permutation(words)))
    split = np.where(random.random(rows) < 0.2, "test", "train")
    return pd.DataFrame({"text": texts, "y": labels, "split": split})


@cache
def texts_file() -> Path:
    """A file of them, kept until the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="calstudy-texts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made_texts(1000).to_parquet(folder / "texts.parquet", index=False)
    return folder / "texts.parquet"
