"""Differences of fractions with few discordant samples: against exact coverage, summed over all
counts, and SciPy's Wilson limits."""

import math

import numpy as np
import pytest
import torch
from pytest import approx
from scipy.stats import binomtest, multinomial

from study.uncertainty.bootstrap import _side
from study.uncertainty.intervals import FEWEST_WRONG
from study.uncertainty.methods import Methods, NetworkPredictions, Seeds, compare_methods
from study.uncertainty.resampling import draws_for
from study.uncertainty.side import of_discordant
from tests.study.made import random_predictions
from trainables.outputs.predictions import Predictions


@pytest.mark.parametrize("expected", [(0.3, 0), (1, 0), (2, 0), (2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_it_covers_where_few_are_discordant(expected: tuple[float, float], level: float) -> None:
    """The exact probability that the interval contains the truth, over every pair of counts."""
    samples, most = 200, 25
    first, second = (each / samples for each in expected)
    covered = 0.0
    for ahead in range(most):
        for behind in range(most):
            low, high = of_discordant(ahead, behind, samples, level)
            if low - 1e-12 <= first - second <= high + 1e-12:
                rest = samples - ahead - behind
                chances = [first, second, 1 - first - second]
                covered += multinomial.pmf([ahead, behind, rest], samples, chances)
    assert covered > level - 0.01


def test_none_is_discordant() -> None:
    high = binomtest(0, 287).proportion_ci(0.95, "wilson").high
    assert of_discordant(0, 0, 287, 0.95) == approx((-high, high))
    assert of_discordant(1, 3, 287, 0.95) == approx(
        [-x for x in of_discordant(3, 1, 287, 0.95)][::-1]
    )


def flipped(count: int) -> tuple[Predictions, Predictions]:
    """Predictions, and those that are wrong on so many of its hits."""
    one = random_predictions(0)
    logits = one.logits.clone()
    hits = (logits.argmax(1) == one.labels).nonzero()[:count, 0]
    logits[hits, one.labels[hits]] = -50.0
    return one, Predictions(2 * logits, one.labels)


@pytest.mark.parametrize("count", [0, 1, FEWEST_WRONG - 1, FEWEST_WRONG])
def test_resamples_are_widened_below_five(count: int) -> None:
    one, other = flipped(count)
    draws = draws_for(one, 500)
    sides = [_side(["accuracy", "error"], None, each, draws) for each in (one, other)]  # type: ignore[arg-type]
    values = sides[0].values["accuracy"] - sides[1].values["accuracy"]
    plain = np.quantile(values, [0.025, 0.975])
    least, most = of_discordant(count, 0, 287, 0.95)
    if count >= FEWEST_WRONG:
        least, most = plain
    expected = (count / 287, min(least, plain[0]), max(most, plain[1]))
    assert sides[0].less(sides[1], "accuracy", 0.95) == approx(expected, abs=1e-6)
    turned = (-expected[0], -expected[2], -expected[1])
    assert sides[0].less(sides[1], "error", 0.95) == approx(turned, abs=1e-6)


def test_groups_count_as_samples() -> None:
    one, other = flipped(0)
    groups = torch.arange(287) // 7
    draws = draws_for(Predictions(one.logits, one.labels, groups), 200)
    sides = [
        _side(["accuracy"], None, Predictions(each.logits, each.labels, groups), draws)  # type: ignore[arg-type]
        for each in (one, other)
    ]
    high = binomtest(0, 41).proportion_ci(0.95, "wilson").high
    assert sides[0].less(sides[1], "accuracy", 0.95) == approx((0, -high, high))


def test_equal_predictions_differ_by_nothing() -> None:
    one, _ = flipped(0)
    draws = draws_for(one, 100)
    first, second = (_side(["accuracy"], None, one, draws) for _ in range(2))  # type: ignore[arg-type]
    assert first.less(second, "accuracy", 0.95) == (0, 0, 0)


def test_methods_that_are_right_on_the_same_samples() -> None:
    """Seeds without a spread, and no sample in which the methods differ: as far as Wilson's limit
    of a share of 0, at the level that holds for all pairs; NLL has the interval it had."""
    one, other = flipped(0)
    networks = {name: [NetworkPredictions(each)] * 3 for name, each in (("a", one), ("b", other))}
    found = compare_methods(networks, ["accuracy", "nll"], 200)
    high = binomtest(0, 287).proportion_ci(0.95, "wilson").high
    assert found["accuracy"].difference("a", "b") == approx((0, -high, high), rel=1e-3)
    assert found["nll"].samples == 0
    rows = {name: Seeds(np.full(2, 0.5), np.full((2, 9), 0.5)) for name in "ab"}
    assert Methods(rows).difference("a", "b") == (0, 0, 0) and math.isinf(Methods(rows).groups)
