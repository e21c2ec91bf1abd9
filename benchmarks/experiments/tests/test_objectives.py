"""The pools' studies: the rule by hand, ranks against SciPy, regrets where the best is known."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pytest import approx
from scipy.stats import spearmanr, t

from benchmarks.experiments import objectives, pools
from benchmarks.experiments.objectives import Asked, Split, lowest_sum
from benchmarks.experiments.pools import Pool
from tests import references

ECE = Asked(("accuracy", "ece"), "raw", True)


def values(**columns):
    return {name: np.array(column) for name, column in columns.items()}


def test_the_rule_by_hand():
    """Error and ECE in units: 13, 12.6, 12.55, 12.5; the last is .025 below the best
    accuracy; three nearly equal."""
    seen = values(
        accuracy=[0.90, 0.89, 0.89, 0.875],
        ece=[0.030, 0.0160, 0.0155, 0.0],
        nll=[0.40, 0.30, 0.35, 0.10],
    )
    assert lowest_sum(seen, ECE) == 1
    assert lowest_sum(seen, ECE._replace(bound=False)) == 3
    # 10, 11, 11 of error; 10, 7.5, 8.75 of NLL.
    assert lowest_sum(seen, Asked(("accuracy",), "raw", True)) == 1


def test_what_is_served_is_what_is_summed():
    """Accuracy has one form; a temperature turns the order of ECE around; ties go
    to the NLL as deployed."""
    seen = values(
        accuracy=[0.9, 0.9],
        ece=[0.01, 0.05],
        ts_ece=[0.04, 0.02],
        nll=[0.3, 0.4],
        ts_nll=[0.3, 0.2],
    )
    assert lowest_sum(seen, ECE) == 0
    assert lowest_sum(seen, ECE._replace(serve="temperature")) == 1
    assert ECE._replace(serve="temperature").label == "accuracy + ts_ece, temperature"


def test_ranks_are_spearmans():
    one, other = np.random.default_rng(0).normal(size=(2, 30))
    group = np.arange(30) < 25
    assert objectives._ranks_agree(one, other, group) == approx(
        spearmanr(one[:25], other[:25]).statistic
    )
    one[3] = np.nan
    kept = group & (np.arange(30) != 3)
    assert objectives._ranks_agree(one, other, group) == approx(
        spearmanr(one[kept], other[kept]).statistic
    )


def test_regret_of_a_rule_that_knows_is_none_in_one_metric(monkeypatch):
    """Two trials of sixty are each the best in something; a rule that always takes the most
    accurate has a regret of 0
    in accuracy and of the distance in the others."""
    monkeypatch.setattr(objectives, "DRAWN", 60)
    monkeypatch.setattr(objectives, "GROUPS", 1)
    truth = np.empty((60, 2, 3))
    truth[:, :, 0], truth[:, :, 1], truth[:, :, 2] = 0.8, 0.5, 0.05
    truth[7, :, 0], truth[9, 1, 2] = 0.9, 0.01
    split = Split(values(accuracy=truth[:, 0, 0], nll=truth[:, 0, 1]), truth)
    found = objectives.regrets([split, split], lowest_sum, [Asked(("accuracy",), "raw", True)])
    assert found.reshape(-1, 3) == approx(np.tile([0.0, 0.0, 0.04], (2 * objectives.DRAWS, 1)))


def test_the_two_half_widths():
    """Values that differ between splits only, then between parts only: Student's
    t of 4 and of 5 means."""
    splits, parts = np.array([1.0, 2.0, 3.0, 6.0]), np.arange(5)
    over_splits = np.repeat(splits[:, None], 10, axis=1)
    reach = t.ppf(0.975, 3) * np.std(splits, ddof=1) / 2
    assert objectives.interval(over_splits) == approx((3.0, reach, 0.0))
    over_parts = np.tile(parts.astype(float), (4, 2))
    reach = t.ppf(0.975, 4) * np.std(parts, ddof=1) / np.sqrt(5)
    assert objectives.interval(over_parts) == approx((2.0, 0.0, reach))


def pool(samples, spread, seed=0):
    """Trials of three classes: each sees the label through noise of its own."""
    source = np.random.default_rng(seed)
    labels = source.integers(3, size=samples)
    logits = np.stack(
        [3 * np.eye(3)[labels] + s * source.normal(size=(samples, 3)) for s in spread]
    )
    return Pool(logits.astype(np.float32), labels)


def test_trials_of_chance_level_do_not_count():
    made = pool(400, [1.0, 1.0])
    guessing = np.zeros_like(made.logits[:1])
    assert (
        len(objectives.counted(Pool(np.concatenate([made.logits, guessing]), made.labels)).logits)
        == 2
    )


def test_the_truth_is_that_of_the_rest():
    made = pool(300, [1.0, 2.0])
    split = objectives.split_of(made, 100, 0)
    right = (made.logits.argmax(axis=2) == made.labels).sum(axis=1)
    on_validation = split.validation["accuracy"] * 100
    assert split.truth[:, 0, 0] == approx((right - on_validation) / 200)
    assert (split.truth[:, 0, 0] == split.truth[:, 1, 0]).all()  # a temperature changes no class
    rows = np.sort(np.random.default_rng([0, 100]).permutation(300)[100:])
    rest = torch.from_numpy(made.logits[1][rows]).double(), torch.from_numpy(made.labels[rows])
    assert split.truth[1, 0, 1:] == approx([references.nll(*rest), references.ece(*rest)])


def test_trials_that_differ_in_noise_are_ranked_again():
    """Many samples: the order of well separated trials is the same on both halves."""
    found = {
        name: row
        for name, *row in objectives.reproduced(pool(1500, [0.5, 1.0, 1.5, 2.0, 3.0]), 1500)
    }
    assert found["nll"][0] == approx(1.0) and found["accuracy"][0] == approx(1.0)


@pytest.mark.parametrize("name", pools.POOLS)
def test_two_thirds_are_left_as_truth(name):
    pool = pools.POOLS[name]
    assert pool.total - pool.trained - pool.validation >= 2 * pool.total / 3 - 1
    train, rest, sealed = pools.rows_of(np.arange(pool.total + 50) % 10, pool)
    assert (
        len(train) == pool.trained
        and not set(train) & set(rest)
        and len(set(train) | set(rest)) == pool.total
    )
    assert len(sealed) == 10


def test_a_pool_is_read_without_what_diverged(tmp_path: Path):
    (tmp_path / "digits").mkdir()
    kept = np.ones((4, 3), np.float32), np.array([0, 1, 2, 0])
    np.savez(tmp_path / "digits" / "a_00.npz", logits=kept[0], labels=kept[1], settings="{}")
    np.savez(
        tmp_path / "digits" / "b_00.npz",
        logits=np.empty((0, 0)),
        labels=np.empty(0, int),
        settings="{}",
    )
    found = pools.read("digits", tmp_path)
    assert found.logits.shape == (1, 4, 3) and found.labels.tolist() == [0, 1, 2, 0]


def test_the_resolution_of_networks_that_err_on_their_own():
    """Two networks of accuracy a, wrong independently: they disagree on 2 a (1 - a)
    of the samples."""
    made = pool(6000, [1.8, 1.8, 1.8])
    a = (made.logits.argmax(axis=2) == made.labels).mean()
    average, disagree, accuracy, *_ = (
        float(cell.split()[0]) for cell in objectives.resolution(made, 1000, pairs=3)
    )
    assert average == approx(a, abs=0.01) and disagree == approx(2 * a * (1 - a), abs=0.02)
    assert accuracy == approx(1.96 * np.sqrt(disagree), rel=0.1)
