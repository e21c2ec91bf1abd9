"""The smallest accuracy that is no guess, where samples belong together: against SciPy's binomial
distribution, which whole groups of one class follow, and against resamples laid end to end."""

import numpy as np
import pytest
from pytest import approx
from scipy.stats import binom

from study.analysis.guessing import above_majority, above_majority_of_groups


@pytest.mark.parametrize(
    ("groups", "of_majority", "rows"), [(20, 10, 5), (50, 10, 8), (200, 90, 1)]
)
def test_groups_of_one_class_are_as_so_many_samples(groups, of_majority, rows):
    labels = np.repeat(np.arange(groups) >= of_majority, rows).astype(np.int64)
    labels[labels == 1] += np.repeat(np.arange(groups), rows)[labels == 1]  # many rare classes
    numbers = np.repeat(np.arange(groups), rows)
    beyond = binom.ppf(0.95, groups, of_majority / groups) / groups
    found = above_majority_of_groups(labels, numbers)
    assert found == approx(beyond + 1 / len(labels), abs=1e-9)


@pytest.mark.parametrize("samples", [1, 7, 60, 287, 2000, 100_000])
def test_it_is_scipys_binomial_test(samples: int) -> None:
    right = np.arange(1, samples + 1)
    for majority in (0.0, 0.003, 0.1, 0.5, 1 / 3, 0.9, 0.999, 1.0):
        significant = right[binom.sf(right - 1, samples, majority) <= 0.05]
        expected = significant[0] / samples if len(significant) else None
        assert above_majority(majority, samples) == expected


def test_resampled_groups_of_unequal_size_laid_end_to_end():
    source = np.random.default_rng(3)
    numbers = np.repeat(np.arange(30), source.integers(1, 20, 30))
    labels = (source.random(len(numbers)) < source.random(30)[numbers]).astype(np.int64)
    labels = 1 - labels if labels.mean() > 0.5 else labels  # 0 is the majority
    members = [labels[numbers == number] for number in range(30)]
    shares = []
    for _ in range(5000):
        drawn = np.concatenate([members[number] for number in source.integers(30, size=30)])
        shares.append((drawn == 0).mean())
    found = above_majority_of_groups(labels, numbers)
    assert found == approx(np.quantile(shares, 0.95), abs=0.01)
    assert found > above_majority((labels == 0).mean(), len(labels))  # rows know too little


def test_of_fewer_than_ten_groups_it_is_just_above_the_majority():
    labels = np.repeat([0, 0, 0, 1, 1, 2, 2], 10)
    numbers = np.repeat(np.arange(7), 10)
    assert above_majority_of_groups(labels, numbers) == approx(31 / 70)


def test_where_no_accuracy_is_enough_there_is_none():
    assert above_majority(0.9, 10) is None  # .9^10 is .35
    assert above_majority(0.5, 4) is None  # .5^4 is .0625
    assert above_majority(0.5, 5) == 1.0
    one_class = np.zeros(40, np.int64)
    assert above_majority_of_groups(one_class, np.repeat(np.arange(4), 10)) is None
    assert above_majority_of_groups(one_class, np.repeat(np.arange(20), 2)) is None
