"""Folds of whole groups, and predictions files that say which samples belong together."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tests.cases import random_case
from trainables import metrics
from trainables.metrics.shared import post_hoc
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError


def numbered(groups: int, samples: int) -> torch.Tensor:
    """Group numbers by first appearance, of groups of several sizes whose samples are mixed."""
    rest = np.random.default_rng(groups).integers(groups, size=samples - groups)
    return torch.from_numpy(np.append(np.arange(groups), rest))


@pytest.mark.parametrize("name", post_hoc.FITS)
@pytest.mark.parametrize("groups", [13, 3])
def test_a_group_is_calibrated_by_the_fit_on_other_folds(name: str, groups: int) -> None:
    """Of three groups there are three folds, each of one group."""
    logits, labels = random_case((60, 4, 5.0))
    of_sample = numbered(groups, 60)
    found = post_hoc.cross_fitted(logits, labels, fit=post_hoc.FITS[name], groups=of_sample)
    folds = min(5, groups)
    for fold in range(folds):
        own = np.array([int(group) % folds == fold for group in of_sample])
        calibrate = post_hoc.FITS[name](logits[~own], labels[~own])
        assert_close(found[own], calibrate(logits[own]), rtol=1e-9, atol=1e-9)


def test_a_single_group_is_left_as_it_is() -> None:
    logits, labels = random_case((20, 4, 5.0))
    one = torch.zeros(20, dtype=torch.int64)
    assert post_hoc.fold_fits(logits, labels, post_hoc.by_temperature, groups=one) == []
    assert post_hoc.cross_fitted(logits, labels, groups=one).equal(logits.double())


@pytest.mark.parametrize("name", post_hoc.FITS)
def test_groups_of_one_sample_change_no_bit(name: str) -> None:
    logits, labels = random_case((43, 6, 5.0))
    fit = post_hoc.FITS[name]
    found = post_hoc.cross_fitted(logits, labels, fit=fit, groups=torch.arange(43))
    assert found.equal(post_hoc.cross_fitted(logits, labels, fit=fit))


def test_what_a_temperature_removes_is_cross_fitted_by_group() -> None:
    logits, labels = random_case((80, 5, 4.0))
    groups = numbered(11, 80)
    calibrated = post_hoc.cross_fitted(logits, labels, groups=groups)
    names = ["calibration_nll", "calibration_brier"]
    expected = {
        name: float(metrics.find(score)(logits, labels) - metrics.find(score)(calibrated, labels))
        for name, score in zip(names, ("nll", "brier"), strict=True)
    }
    assert metrics.measure(logits, labels, names, groups=groups) == pytest.approx(expected)
    found = Predictions(logits, labels, groups).evaluate(also=names)
    assert {name: found[name] for name in names} == pytest.approx(expected)
    plain = Predictions(logits, labels).evaluate(also=names)
    assert all(found[name] != plain[name] for name in names)


# ---- files ---------------------------------------------------------------------------------------


def saved(path: Path, groups: np.ndarray) -> Path:
    logits, labels = random_case((6, 3, 1.0))
    np.savez(path, logits=logits.numpy(), labels=labels.numpy(), groups=groups)
    return path


@pytest.mark.parametrize(
    "groups",
    [
        np.array([40, 7, 40, -2, 7, 40]),
        np.array([3, 1, 3, 200, 1, 3], dtype=np.uint8),
        np.array(["p40", "p7", "p40", "2", "p7", "p40"]),
    ],
)
def test_groups_of_a_file_are_numbered_by_first_appearance(
    tmp_path: Path, groups: np.ndarray
) -> None:
    found = Predictions.load(saved(tmp_path / "p.npz", groups))
    assert found.groups is not None and found.groups.dtype == torch.int64
    assert found.groups.tolist() == [0, 1, 0, 2, 1, 0]
    found.save(tmp_path / "again.npz")
    again = Predictions.load(tmp_path / "again.npz").groups
    assert again is not None and again.equal(found.groups)


def test_groups_by_another_name_are_not_passed_over(tmp_path: Path) -> None:
    logits, labels = random_case((6, 3, 1.0))
    arrays = {"logits": logits.numpy(), "labels": labels.numpy(), "group": np.arange(6)}
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(FieldError, match="has an array 'group'"):
        Predictions.load(tmp_path / "p.npz")


def test_a_file_without_groups_has_none(tmp_path: Path) -> None:
    Predictions(*random_case((6, 3, 1.0))).save(tmp_path / "p.npz")
    assert Predictions.load(tmp_path / "p.npz").groups is None
    with np.load(tmp_path / "p.npz") as archive:
        assert sorted(archive.files) == ["labels", "logits"]


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        (
            np.arange(5),
            r"'groups' must be whole numbers or text \[6\], got int64 \[5\]\. Give each",
        ),
        (np.zeros((6, 1), int), r"whole numbers or text \[6\], got int64 \[6, 1\]"),
        (np.arange(6.0), r"whole numbers or text \[6\], got float64 \[6\]"),
        (np.ones(6, bool), r"whole numbers or text \[6\], got bool \[6\]"),
        (np.array(["a", "b", "", "a", " ", "b"]), "'groups' is empty in 2 rows, e.g. row 2"),
    ],
)
def test_groups_that_cannot_be_are_one_line(tmp_path: Path, groups: np.ndarray, found: str) -> None:
    path = saved(tmp_path / "p.npz", groups)
    with pytest.raises(FieldError, match=found):
        Predictions.load(path)
