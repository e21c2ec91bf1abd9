"""The test split is sealed: a trial that asks for it fails, and it opens for an opening
that stands in a ledger."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from trainables.config import TrialConfig
from trainables.data.digits import Digits
from trainables.loading.cache import data_digest, load_split, prepare
from trainables.loading.sealed_split import open_test
from trainables.plugins import use_extensions
from trainables.problems import FieldError
from trainables.training.attempt import Assignment, Attempt

PEEKS = """
from dataclasses import dataclass

import torch.nn.functional as F

from trainables.method import Method
from trainables.files.home import default_cache
from trainables.loading.cache import load_split, open_prepared


@dataclass(frozen=True)
class Peeks(Method):
    def start(self, task):
        return load_split(open_prepared(default_cache() / task.data_digest), "test")

    def loss(self, logits, targets, progress):
        return F.cross_entropy(logits, targets)
"""


@dataclass
class Ledger:
    openings: list[int] = field(default_factory=list)

    def has(self, number: int) -> bool:
        return number in self.openings


@pytest.mark.slow
def test_a_trial_that_asks_for_test_fails_with_that_reason(tmp_path: Path) -> None:
    folder = tmp_path / "extensions"
    (folder / "methods").mkdir(parents=True)
    (folder / "methods" / "peeks.py").write_text(PEEKS)
    plain = {
        "data": "digits",
        "model": "mlp",
        "method": "peeks",
        "epochs": 1,
        "extensions": str(folder),
    }
    try:
        config = TrialConfig.from_mapping(plain).to_mapping()
        given = Assignment(
            "peeks/0000",
            str(tmp_path / "t"),
            1,
            config,
            data_digest(Digits(), 0),
            30.0,
            {"cpu": 1.0, "gpu": 0.0},
        )
        outcome = Attempt(given).step().outcome
    finally:
        use_extensions(None)
    assert outcome is not None and outcome.state == "failed"
    assert "split 'test' cannot be loaded: trials use train and validation, test is sealed" in str(
        outcome.reason
    )


def test_it_opens_for_an_opening_that_stands_in_the_ledger(tmp_path: Path) -> None:
    """And is then what neither train nor validation have of the source."""
    prepared = prepare(Digits(), 0, tmp_path)
    ledger = Ledger([4])
    for number in (0, 1, 5):
        with pytest.raises(ValueError, match=f"sealed: the ledger has no opening {number}"):
            open_test(prepared, number, ledger)
    split = open_test(prepared, 4, ledger)
    parts = [load_split(prepared, "train"), load_split(prepared, "validation"), split]
    rows = np.concatenate(
        [np.column_stack([part.images.flatten(1), part.labels]) for part in parts]
    )
    source = load_digits()
    expected = np.column_stack([source.data.astype(int), source.target])
    assert len(split.labels) == prepared.sizes["test"] == 359
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, expected.tolist()))


def test_a_damaged_test_split_is_named_and_never_measured(tmp_path: Path) -> None:
    prepared = prepare(Digits(), 0, tmp_path)
    file = prepared.directory / "test.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert prepare(Digits(), 0, tmp_path) == prepared  # nobody else reads it
    with pytest.raises(FieldError) as refused:
        open_test(prepared, 4, Ledger([4]))
    said = f"data: {file} is damaged. Remove that folder and confirm again: it is made again."
    assert str(refused.value) == said
