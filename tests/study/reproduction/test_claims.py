"""Claims by paired seeds, against SciPy's tests and R's p.adjust."""

import math

import numpy as np
import pytest
from pytest import approx
from scipy import stats

from study.reproduction.claims import (
    CANNOT,
    HOLDS,
    NOT_SEPARABLE,
    REVERSED,
    Pair,
    holm,
    judge_claims,
)


def by_seed(values) -> dict[int, float]:
    return dict(enumerate(map(float, values)))


RANDOM = np.random.default_rng(0)
HARD = RANDOM.normal(size=5) * 3  # what the seeds share
LOW = HARD + RANDOM.normal(size=5) * 0.1
HIGH = HARD + 1 + RANDOM.normal(size=5) * 0.1


def test_one_claim_is_the_paired_t_test() -> None:
    (found,) = judge_claims([Pair(by_seed(LOW), by_seed(HIGH))])
    expected = stats.ttest_rel(LOW, HIGH)
    interval = expected.confidence_interval(0.95)
    assert found.word == HOLDS
    assert found.pairs == 5
    assert found.difference == approx(np.mean(LOW - HIGH))
    assert (found.low, found.high) == approx((interval.low, interval.high))
    assert found.p == approx(expected.pvalue)
    assert stats.ttest_ind(LOW, HIGH).pvalue > 0.2  # unpaired, nothing would be seen


def test_against_a_number_it_is_the_test_of_one_sample() -> None:
    values = [1.8, 2.2, 2.1, 1.9]
    (found,) = judge_claims([Pair(by_seed(values), 1.0, higher=True)])
    expected = stats.ttest_1samp(values, 1.0)
    assert found.word == HOLDS
    assert found.p == approx(expected.pvalue)
    assert found.low + 1 == approx(expected.confidence_interval().low)


@pytest.mark.parametrize(("higher", "word"), [(False, HOLDS), (True, REVERSED)])
def test_the_direction_is_the_claims(higher: bool, word: str) -> None:
    (found,) = judge_claims([Pair(by_seed(LOW), by_seed(HIGH), higher)])
    assert found.word == word
    (found,) = judge_claims([Pair(by_seed(HIGH), by_seed(LOW), not higher)])
    assert found.word == word


def test_holm_is_that_of_r() -> None:
    """p.adjust(c(.01, .02, .03, .04, .05), "holm"), and with its values in another order."""
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([0.04, 0.01, 0.05, 0.03, 0.02]) == approx([0.09, 0.05, 0.09, 0.09, 0.08])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_many_claims_are_adjusted_those_without_a_test_are_not_counted() -> None:
    weak = Pair(by_seed([1.0, 2.0, 3.0]), by_seed([1.5, 2.9, 3.7]))
    alone = judge_claims([weak])[0]
    assert alone.p == approx(stats.ttest_rel([1.0, 2, 3], [1.5, 2.9, 3.7]).pvalue)
    assert alone.word == HOLDS
    few = Pair(by_seed([1.0, 2.0]), by_seed([5.0, 6.0]))
    first, second, third = judge_claims([weak, few, weak])
    assert first == third
    assert first.p == approx(2 * alone.p)
    assert first.word == NOT_SEPARABLE
    assert first.high == alone.high < 0  # the interval is its own, before Holm
    assert (second.word, second.p) == (CANNOT, None)
    assert second.reason == "2 seeds of both sides, fewer than 3"


def test_only_seeds_of_both_sides_count() -> None:
    ours = {-1: math.nan, 0: 1.0, 1: 2.0, 2: 3.5, 3: math.inf, 7: 0.0}
    other = {-1: 1.0, 0: 2.0, 1: 4.0, 2: 4.0, 3: math.inf, 5: -9.0}
    (found,) = judge_claims([Pair(ours, other)])
    assert found.pairs == 3
    assert found.difference == approx(-3.5 / 3)
    assert found.p == approx(stats.ttest_rel([1.0, 2.0, 3.5], [2.0, 4.0, 4.0]).pvalue)


def test_nothing_of_a_method_that_failed() -> None:
    (found,) = judge_claims([Pair({}, by_seed(LOW))])
    assert (found.word, found.pairs, found.difference) == (CANNOT, 0, None)


@pytest.mark.parametrize(
    ("seeds", "p", "word"), [(3, 0.0513, NOT_SEPARABLE), (5, 0.0054, HOLDS), (8, 0.0002, HOLDS)]
)
def test_equal_differences_are_those_of_the_widest_grid(seeds: int, p: float, word: str) -> None:
    """Student's t is sqrt(6 seeds): the sd of two roundings to a step is step / sqrt 6."""
    above = by_seed(1.2 + 0.1 * np.arange(seeds))
    below = {number: value - 0.1 for number, value in above.items()}  # equal but for rounding
    (found,) = judge_claims([Pair(below, above)])
    expected = 2 * stats.t.sf(math.sqrt(6 * seeds), seeds - 1)
    assert found.p == approx(expected)
    assert found.p == approx(p, abs=1e-4)
    assert found.word == word
    assert found.low < found.difference < found.high
    steps = RANDOM.uniform(-0.5, 0.5, size=(2, 100_000))
    assert np.std(steps[0] - steps[1]) == approx(1 / math.sqrt(6), rel=0.02)


def test_the_validation_split_that_all_seeds_share_adds_its_variance() -> None:
    """Seeds cannot show what another split would change: their error and its own add as squares."""
    (found,) = judge_claims([Pair(by_seed(LOW), by_seed(HIGH), split_variance=0.2)])
    error = math.sqrt(np.var(LOW - HIGH, ddof=1) / 5 + 0.2)
    reach = stats.t.ppf(0.975, 4) * error
    assert (found.low, found.high) == approx((found.difference - reach, found.difference + reach))
    assert found.p == approx(2 * stats.t.sf(abs(found.difference) / error, 4))


def test_no_difference_at_all() -> None:
    same = by_seed([1.0, 1.1, 1.2])
    (found,) = judge_claims([Pair(same, same)])
    assert (found.word, found.difference, found.low, found.high) == (NOT_SEPARABLE, 0, 0, 0)
    assert found.p == 1.0


def test_a_true_null_is_rejected_at_most_in_five_of_a_hundred_tables() -> None:
    """Of 2,000 tables of four claims without a difference: 5%, with four times its binomial sd."""
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(2000):
        sides = random.normal(size=(4, 2, 5))
        found = judge_claims([Pair(by_seed(one), by_seed(other)) for one, other in sides])
        wrong += any(one.word != NOT_SEPARABLE for one in found)
    assert wrong / 2000 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)
