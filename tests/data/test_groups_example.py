"""The example of docs/how-to/keep-groups-together.md: forty patients whose images are near-copies,
labels drawn by patient."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainables.dataset import Dataset, RawData, RawSplit
from trainables.loading.cache import prepare

PATIENTS = 40
EACH = 20  # images of a patient
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "keep-groups-together.md"


@dataclass(frozen=True)
class NearCopies(Dataset):
    """Each patient has one random image, with a little noise in each copy."""

    drawn: int = 0
    by_patient: bool = True

    def source_digest(self) -> str:
        return f"{self.drawn} {self.by_patient}"

    def read(self) -> RawData:
        random = np.random.default_rng(self.drawn)
        faces = random.integers(20, 236, (PATIENTS, 1, 8, 8))
        patients = np.repeat(np.arange(PATIENTS), EACH)
        noise = random.integers(-10, 11, (len(patients), 1, 8, 8))
        images = (faces[patients] + noise).astype(np.uint8)
        labels = random.integers(0, 2, PATIENTS)[patients]
        groups = patients if self.by_patient else None
        return RawData(("ill", "well"), RawSplit(images, labels, groups))


def accuracy(folder: Path, drawn: int, by_patient: bool) -> float:
    """The accuracy on test of the nearest neighbour in train."""
    prepared = prepare(NearCopies(drawn=drawn, by_patient=by_patient), drawn, folder)
    train, test = (
        np.load(prepared.directory / f"{name}.npy").reshape(-1, 64).astype(float)
        for name in ("train", "test")
    )
    labels, truth = (
        np.load(prepared.directory / f"{name}_labels.npy") for name in ("train", "test")
    )
    squares = (test**2).sum(axis=1)[:, None] + (train**2).sum(axis=1) - 2 * test @ train.T
    return float((labels[squares.argmin(axis=1)] == truth).mean())


def test_split_by_image_a_network_knows_the_patient(tmp_path: Path) -> None:
    found = {
        by_patient: np.mean([accuracy(tmp_path, seed, by_patient) for seed in range(10)])
        for by_patient in (False, True)
    }
    assert found[False] > 0.95 and 0.4 < found[True] < 0.6
    said = dict(re.findall(r"^\| (image|patient) \| (\S+) \|$", DOCS.read_text(), re.MULTILINE))
    assert said == {"image": f"{found[False]:.2f}", "patient": f"{found[True]:.2f}"}
