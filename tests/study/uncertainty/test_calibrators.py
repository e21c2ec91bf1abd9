"""Calibrators beside each other: cross-fitted, less one of them, with paired intervals."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pytest import CaptureFixture, approx
from sklearn.metrics import log_loss

import calstudy
from study.uncertainty.calibrators import calibrators, compared
from tests.cases import random_case
from tests.metrics.test_evaluate import run
from trainables.metrics.shared import post_hoc
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

NAMES = ("vector_scaling", "structured_vector", "structured_matrix")


@pytest.fixture
def biased() -> Predictions:
    """Of a model that is too sure of one class, so that a bias changes classes."""
    logits, labels = random_case((200, 3, 2.0))
    return Predictions(logits + torch.tensor([2.0, 0.0, 0.0]), labels, by_network=True)


def test_the_numbers_of_each(biased: Predictions) -> None:
    """Brier scores and NLL by hand and by scikit-learn, folds by hand, ECE as it is elsewhere."""
    found = calibrators(biased, NAMES, resamples=0, reference="none")
    assert list(found) == ["none", *NAMES]
    truth = np.eye(3)[biased.labels]
    for name in NAMES:
        probs = np.empty((200, 3))
        for fold in range(5):
            own = np.arange(200) % 5 == fold
            fit = post_hoc.FITS[name](biased.logits[~own], biased.labels[~own])
            probs[own] = fit(biased.logits[own]).softmax(-1).numpy()
        row = found[name]
        assert row["nll"] == approx(log_loss(biased.labels, probs), abs=1e-9)
        assert row["brier"] == approx(((probs - truth) ** 2).sum(axis=1).mean(), abs=1e-9)
        assert row["accuracy"] == approx((probs.argmax(1) == biased.labels.numpy()).mean())
        changed = (probs.argmax(1) != biased.logits.argmax(1).numpy()).sum()
        assert row["changed"] == changed > 10
        assert row["nll_less"] == row["nll"] - found["none"]["nll"]
        assert "nll_less_low" not in row
    assert found["none"]["changed"] == 0


def test_differences_are_paired(biased: Predictions) -> None:
    """The interval of the difference in NLL is that of the mean of differences, by its standard
    error; far narrower than that of two independent values."""
    found = calibrators(biased, ("structured_vector",))
    assert list(found) == ["none", "temperature", "structured_vector"]
    row = found["structured_vector"]
    assert "nll_less_low" not in found["temperature"] and found["temperature"]["fitted"] > 0
    of_each = []
    for name in ("structured_vector", "temperature"):
        after = post_hoc.cross_fitted(biased.logits, biased.labels, fit=post_hoc.FITS[name])
        of_each.append(-after.log_softmax(-1)[torch.arange(200), biased.labels].numpy())
    less = of_each[0] - of_each[1]
    assert row["nll_less"] == approx(less.mean(), abs=1e-9)
    half = 1.96 * less.std(ddof=1) / np.sqrt(200)
    ends = [row["nll_less_low"], row["nll_less_high"]]
    assert ends == approx([less.mean() - half, less.mean() + half], abs=0.2 * half)
    assert ends[1] < 0  # it helps
    alone = 1.96 * np.sqrt(sum(each.var() for each in of_each) / 200)
    assert ends[1] - ends[0] < 1.9 * alone


def test_one_that_does_nothing_is_no_better(biased: Predictions) -> None:
    found = compared(biased, {"none": biased.logits, "same": biased.logits + 1}, reference="none")
    same = found["same"]
    assert same["changed"] == 0
    assert [same[f"nll_less{end}"] for end in ("", "_low", "_high")] == approx([0, 0, 0], abs=1e-12)


def test_in_python() -> None:
    logits, labels = random_case((60, 3, 2.0))
    groups = np.arange(60) // 2
    table = calstudy.evaluate(labels, logits=logits, groups=groups).post_hoc()
    assert list(table.index) == ["none", *post_hoc.FITS]
    after = post_hoc.cross_fitted(
        logits, labels, fit=post_hoc.FITS["structured_matrix"], groups=torch.from_numpy(groups)
    )
    nll = -after.log_softmax(-1)[torch.arange(60), labels].mean()
    assert table.loc["structured_matrix", "nll"] == approx(float(nll), abs=1e-9)
    weighted = calstudy.evaluate(labels, logits=logits, weights=np.arange(60) + 1.0)
    with pytest.raises(FieldError, match="weights: a calibrator has no weighted form"):
        weighted.post_hoc()


def test_many_classes_have_no_matrix(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "many.npz",
        logits=generator.normal(size=(30, 300)),
        labels=generator.integers(300, size=30),
    )
    code, out, _ = run(capsys, tmp_path / "many.npz", "--post-hoc")
    assert code == 0 and "structured_vector" in out
    assert out.endswith("structured_matrix is for at most 256 classes.\n")
