"""Intervals of calibration errors against their slow definition, and what needs no definition.

Probabilities are multiples of 2^-14, so that sums of them are exact in float32 too: whether a
resample's noise is *as large* as a gap is then a fact, not rounding.
"""

import numpy as np
import pytest
import torch
from pytest import approx
from scipy.special import softmax

from study.uncertainty.bootstrap import measured
from study.uncertainty.resampling import Draws
from study.uncertainty.worlds import Worlds
from tests.study.uncertainty import worlds_reference as slow
from trainables.groups import renumbered
from trainables.outputs.predictions import Predictions

ERRORS = ("ece", "adaptive_ece", "mce", "classwise_ece")
LEVELS = (0.9, 0.95, 0.99)
UNIT = 2**14
SIZES = [(40, 3, 137), (150, 3, 393), (60, 10, 73), (120, 2, 253)]


def rounded(probs):
    """Probabilities in units of 2^-14, no two rows with the same largest one."""
    units = np.floor(probs * UNIT).astype(int)
    taken = set()
    for row in units:
        top = row.argmax()
        row[top] += UNIT - row.sum()
        while row[top] in taken or np.sum(row == row[top]) > 1:
            row[top] -= 1
            row[top - 1] += 1
        taken.add(row[top])
    return units / UNIT


def network(rows, classes, number=0, scale=2.5, groups=None):
    """Network `number` on the same samples as the others, at its own sharpness."""
    source = np.random.default_rng([1, rows, classes])
    evidence = source.normal(size=(rows, classes)) * 2
    labels = (evidence + source.gumbel(size=evidence.shape)).argmax(axis=1)
    own = np.random.default_rng([1, rows, classes, number + 1]).normal(size=evidence.shape)
    probs = rounded(softmax(evidence * scale / 2 + own * 1.5 * (number > 0), axis=1))
    known = None if groups is None else torch.from_numpy(groups)
    return Predictions(probs=torch.from_numpy(probs), labels=torch.from_numpy(labels), groups=known)


def fives(rows):
    """Groups of five rows each, in no order."""
    source = np.random.default_rng(5)
    return renumbered(source.permutation(np.repeat(np.arange(rows // 5), 5)))


def worlds(predictions, draws, metric):
    return Worlds.of(metric, measured(predictions, draws, ERRORS)[""])


def both(predictions, draws, metric):
    """The product's worlds, and the slow definition's network."""
    probs, labels = predictions.probs.numpy(), predictions.labels.numpy()
    return worlds(predictions, draws, metric), slow.network(metric, probs, labels, draws)


def near(expected, error):
    return approx(tuple(map(float, expected)), abs=2e-5 * max(error, 0.01))


@pytest.mark.parametrize("grouped", [False, True], ids=["samples", "groups"])
@pytest.mark.parametrize("metric", ERRORS)
@pytest.mark.parametrize("size", SIZES)
def test_intervals_are_those_of_the_definition(size, metric, grouped):
    """Of each network, and of their difference."""
    rows, classes, resamples = size
    groups = fives(rows) if grouped else None
    draws = Draws.of(rows, resamples, 0, groups)
    sharp = network(rows, classes, groups=groups)
    other = network(rows, classes, 1, 4.0, groups)
    fast, own = zip(*(both(each, draws, metric) for each in (sharp, other)), strict=True)
    models = [slow.model(each) for each in own]
    for level in LEVELS:
        for found, model in zip(fast, models, strict=True):
            assert found.error == approx(model.error, abs=1e-9)
            assert found.interval(level) == near(slow.interval(model, level), found.error)
        expected = slow.difference(*models, level)
        assert fast[0].less(fast[1], level) == near(expected, fast[0].error)


@pytest.mark.parametrize("metric", ERRORS)
@pytest.mark.parametrize("seeds", [(0, 1), (0, 1, 2)])
def test_mean_over_seeds_is_in_a_world_where_each_network_is(metric, seeds):
    draws = Draws.of(80, 137, 0)
    found = [both(network(80, 3, each), draws, metric) for each in seeds]
    fast = Worlds.mean([each for each, _ in found])
    model = slow.model(*(each for _, each in found))
    for level in LEVELS:
        assert fast.interval(level) == near(slow.interval(model, level), fast.error)


@pytest.mark.parametrize("metric", ERRORS)
def test_equal_networks_do_not_differ(metric):
    draws = Draws.of(60, 137, 0)
    one, other = (worlds(network(60, 3, number), draws, metric) for number in (0, 1))
    assert one.less(one, 0.95) == (0, 0)
    assert Worlds.mean([one, other]).less(Worlds.mean([other, one]), 0.95) == (0, 0)


def extreme(kind):
    source = np.random.default_rng(2)
    labels = torch.from_numpy(source.integers(3, size=45))
    logits = torch.from_numpy(source.normal(size=(45, 3)))
    if kind == "all right":
        logits = logits + 8 * torch.eye(3)[labels]
    if kind == "sure":
        logits = 1000.0 * torch.eye(3)[(labels + (logits[:, 0] > 1)) % 3]
    if kind == "one a bin":
        logits, labels = logits[:15], labels[:15]
    return Predictions(logits=logits, labels=labels)


@pytest.mark.parametrize("metric", ERRORS)
@pytest.mark.parametrize("kind", ["usual", "all right", "sure", "one a bin"])
def test_intervals_are_finite_and_in_order(kind, metric):
    """A difference the other way round is its negative; a higher level is not narrower."""
    one = extreme(kind)
    other = Predictions(logits=one.logits * 0.5 - one.logits.flip(0) * 0.2, labels=one.labels)
    draws = Draws.of(len(one.labels), 137, 0)
    first, second = (worlds(each, draws, metric) for each in (one, other))
    widths = []
    for level in LEVELS:
        low, high = first.interval(level)
        assert np.isfinite([low, high]).all()
        assert 0 <= low <= high
        low, high = first.less(second, level)
        assert np.isfinite([low, high]).all()
        assert low <= high
        assert second.less(first, level) == approx((-high, -low), abs=1e-5)
        widths.append(high - low)
    assert widths[0] <= widths[1] + 0.01
    assert widths[1] <= widths[2] + 0.01


@pytest.mark.parametrize("metric", ERRORS)
@pytest.mark.parametrize("times", [1.02, 1.15, 1.4])
def test_networks_that_are_alike_stand_beside_each_other(metric, times):
    draws = Draws.of(60, 137, 0)
    one = network(60, 10)
    warm = rounded(softmax(one.logits.clamp(min=-20).numpy() / times, axis=1))
    other = Predictions(probs=torch.from_numpy(warm), labels=one.labels)
    fast, own = zip(*(both(each, draws, metric) for each in (one, other)), strict=True)
    models = [slow.model(each) for each in own]
    assert slow.alike(*models) or metric == "mce" or times == 1.4
    for level in LEVELS:
        expected = slow.difference(*models, level)
        assert fast[0].less(fast[1], level) == near(expected, fast[0].error)


@pytest.mark.parametrize("metric", ERRORS)
@pytest.mark.parametrize("seeds", [((0, 1), (2, 3)), ((0,), (1, 2))])
def test_differences_of_means_are_those_of_the_definition(metric, seeds):
    """Also of unequal numbers of seeds."""
    draws = Draws.of(80, 137, 0)
    found = [[both(network(80, 3, each), draws, metric) for each in of] for of in seeds]
    fast = [Worlds.mean([each for each, _ in of]) for of in found]
    models = [slow.model(*(each for _, each in of)) for of in found]
    expected = slow.difference(*models, 0.95)
    assert fast[0].less(fast[1], 0.95) == near(expected, fast[0].error)


def test_rare_cells_take_the_noise_of_drawn_labels():
    draws = Draws.of(300, 273, 0)
    fast, own = both(network(300, 10), draws, "classwise_ece")
    assert fast.interval(0.95) == near(slow.interval(slow.model(own), 0.95), fast.error)


def test_noise_as_large_as_a_gap_counts_with_any_probabilities():
    draws = Draws.of(60, 73, 0)
    one = network(60, 3, 1, 3.0)
    probs = torch.softmax(one.logits.clamp(min=-20) * 1.01, dim=1)
    fast, own = both(Predictions(probs=probs, labels=one.labels), draws, "adaptive_ece")
    assert fast.interval(0.95) == near(slow.interval(slow.model(own), 0.95), fast.error)
