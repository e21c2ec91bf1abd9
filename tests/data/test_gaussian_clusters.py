"""Gaussian clusters against closed forms, and the study of them against scikit-learn."""

import hashlib
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import study
from study.schema.reading import read_spec
from trainables.config import TrialConfig
from trainables.data.gaussian_clusters import GaussianClusters
from trainables.loading.cache import load_split, prepare
from trainables.loading.trial_data import trial_data
from trainables.problems import FieldError
from trainables.training.learner import Learner

CPU = torch.device("cpu")
VERTICES = [(-2, -2), (-2, 2), (2, -2), (2, 2)]  # a square of side 4
TOY = Path(study.__file__).parent / "specs" / "papers" / "focal_toy.yaml"


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("split", ["train", "test"])
def test_each_cluster_has_the_mean_and_covariance_of_mixed_normal_numbers(
    seed: int, split: str
) -> None:
    """Cov(z A) = A'A. Within 5 standard errors: of a mean sd / sqrt(n), of a covariance at most
    sqrt(2 / n) times the variances."""
    count = 40_000
    clusters = GaussianClusters(seed=seed, train=count, test=count)
    raw = clusters.read()
    found = raw.train if split == "train" else raw.test
    assert found is not None
    assert (found.images.dtype, found.images.shape) == (np.float32, (count, 2))
    mixes = clusters.mixes()
    assert (np.abs(mixes) <= 1).all() and len(np.unique(mixes)) == 16
    for cluster, vertex in enumerate(VERTICES):
        samples = found.images[cluster::4].astype(np.float64)
        covariance = mixes[cluster].T @ mixes[cluster]
        error = 5 / np.sqrt(len(samples))
        deviations = np.sqrt(np.diag(covariance))
        assert (np.abs(samples.mean(axis=0) - vertex) < error * deviations).all()
        limits = error * np.sqrt(2) * np.outer(deviations, deviations)
        assert (np.abs(np.cov(samples.T) - covariance) < limits).all()


@pytest.mark.parametrize(("flipped", "wrong"), [(0.0, 0), (0.1, 400), (0.5, 2000)])
def test_so_many_labels_are_wrong(flipped: float, wrong: int) -> None:
    raw = GaussianClusters(flipped=flipped).read()
    assert raw.classes == ("left", "right") and raw.test is not None
    for split, count in ((raw.train, wrong), (raw.test, wrong // 4)):
        side = np.tile([0, 0, 1, 1], len(split.labels) // 4)  # of the cluster's vertex
        assert int((split.labels != side).sum()) == count


def test_it_is_the_same_everywhere() -> None:
    """Bytes that were written down, once."""
    raw = GaussianClusters().read()
    assert raw.test is not None
    found = [
        hashlib.sha256(split.images.tobytes() + split.labels.tobytes()).hexdigest()[:16]
        for split in (raw.train, raw.test)
    ]
    assert found == ["0cfd558ef19a8676", "5d8476a7c3fefb4c"]
    scaled = raw.train.images.astype(np.float64) * 2**16
    assert (scaled == np.rint(scaled)).all()  # what a machine's last bit cannot change


def test_each_option_makes_other_data_of_another_digest() -> None:
    options: list[dict[str, Any]] = [{}, {"seed": 1}, {"train": 5000}, {"test": 999}]
    options += [{"flipped": 0.2}]
    made = [GaussianClusters(**one) for one in options]
    assert len({one.source_digest() for one in made}) == len(options)
    assert GaussianClusters(validation=0.3).source_digest() == made[0].source_digest()
    first = made[0].read().train.images
    assert not np.array_equal(made[1].read().train.images, first)
    assert np.array_equal(made[3].read().train.images, first)  # test is drawn by itself
    with pytest.raises(FieldError, match=r"flipped: must be >= 0 and <= 0\.5, got 0\.6"):
        GaussianClusters(flipped=0.6)


@cache
def of_the_study(label: str) -> Learner:
    spec = read_spec(TOY)
    config = TrialConfig.from_mapping(spec.trial_mapping(label))
    learner = Learner(config, trial_data(config, CPU), CPU)
    while not learner.finished:
        learner.train_epoch()
    return learner


@pytest.mark.slow
def test_the_norm_grows_under_cross_entropy_and_less_under_focal_loss() -> None:
    """Appendix C of the paper; the larger gamma, the less."""
    norms = {
        label: [row["head_norm"] for row in of_the_study(label).history]
        for label in ("cross_entropy", "focal_1", "focal_3")
    }
    assert all(len(found) == 100 for found in norms.values())
    assert all(after > before for before, after in pairwise(norms["cross_entropy"]))
    for more, less in pairwise(norms.values()):
        assert all(one > other for one, other in zip(more, less, strict=True))
    growth = {label: found[-1] / found[0] for label, found in norms.items()}
    assert growth["cross_entropy"] > 1.5 and growth["focal_3"] < 1.1
    mistakes = [of_the_study(label).history[-1]["nll_wrong"] for label in norms]
    assert mistakes == sorted(mistakes, reverse=True)


@pytest.mark.slow
def test_cross_entropy_ends_at_the_minimum_of_scikit_learn() -> None:
    """Without a penalty, of the standardised columns: the difference of the classes' weights."""
    network = of_the_study("cross_entropy").network
    spec = read_spec(TOY)
    split = load_split(prepare(spec.data, spec.seed), "train")
    columns = split.images.double().numpy()
    standard = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    fitted = LogisticRegression(C=np.inf, tol=1e-9).fit(standard, split.labels.numpy())
    weights = network.head.weight.detach().double().numpy()
    assert weights[1] - weights[0] == pytest.approx(fitted.coef_[0], abs=2e-3)
