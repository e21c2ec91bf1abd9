"""The floor against labels drawn one at a time, and against the binomial where all
confidences are equal."""

import numpy as np
import pytest
import torch
from pytest import approx
from scipy.stats import binom

from study.uncertainty.bootstrap import measured
from study.uncertainty.intervals import WITH_FLOOR, intervals
from study.uncertainty.methods import NetworkPredictions, floors_over_seeds, mean_over_seeds
from study.uncertainty.resampling import Draws
from tests.study.uncertainty.test_bootstrap import case
from tests.study.uncertainty.test_equal_sizes import slow
from trainables.metrics.shared.post_hoc import cross_fitted
from trainables.outputs.predictions import Predictions


def drawn_one_at_a_time(logits, uniforms):
    """The labels of each draw: the class, most likely first, at which the probabilities reach the
    uniform."""
    found = []
    for column in uniforms.astype(np.float64).T:
        labels = []
        for row, height in zip(logits, column, strict=True):
            probs = np.exp(row - row.max())
            order = np.argsort(-probs, kind="stable")
            reached = np.flatnonzero(np.cumsum(probs[order]) / probs.sum() > height)
            labels.append(order[reached[0]])
        found.append(np.array(labels))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["", "ts_"])
def test_it_is_that_of_labels_drawn_one_at_a_time(prefix):
    """After temperature: of the predictions after the cross-fitted one."""
    predictions, draws = case(90, 4), Draws.of(90, 40, 0)
    logits = cross_fitted(predictions.logits, predictions.labels) if prefix else predictions.logits
    drawn = drawn_one_at_a_time(logits.numpy(), draws.chances)
    for name in WITH_FLOOR:
        expected = [slow(name, logits.numpy(), labels) for labels in drawn]
        (part,) = measured(predictions, draws, [prefix + name]).values()
        for level, ends in ((0.95, [0.025, 0.975]), (0.8, [0.1, 0.9])):
            found = intervals(part, level, [name])[name].floor
            wanted = (np.mean(expected), *np.quantile(expected, ends))
            assert found == approx(wanted, abs=2e-4), name


@pytest.mark.parametrize(("confidence", "samples"), [(0.65, 40), (0.9, 25)])
def test_of_one_confidence_it_is_the_binomials(confidence, samples):
    """E |hits / n - p| and its quantiles, whatever the bin."""
    probs = torch.tensor([confidence, 1 - confidence]).repeat(samples, 1)
    predictions = Predictions(probs.double().log(), (torch.arange(samples) % 2).long())
    (part,) = measured(
        predictions, Draws.of(samples, 20_000, 0), ["ece", "adaptive_ece", "mce"]
    ).values()
    hits = np.arange(samples + 1)
    gaps, shares = np.abs(hits / samples - confidence), binom.pmf(hits, samples, confidence)
    order = gaps.argsort()
    low, high = (
        gaps[order][np.searchsorted(shares[order].cumsum(), end)] for end in (0.025, 0.975)
    )
    for name in ("ece", "adaptive_ece", "mce"):
        found = intervals(part, wanted=[name])[name].floor
        # Four standard errors of 20,000 draws.
        assert found.mean == approx((gaps * shares).sum(), abs=0.002)
        assert (found.low, found.high) == approx((low, high), abs=1e-4)


def test_a_calibrated_model_measures_its_floor():
    """On average over samples of it; an over-confident one measures more, and
    still has that floor."""
    logits = case(300).logits
    truth, source = (logits / 1.0).softmax(-1), torch.Generator().manual_seed(0)
    draws, errors, floors = Draws.of(300, 400, 0), [], []
    for _ in range(60):
        predictions = Predictions(logits, torch.multinomial(truth, 1, generator=source).squeeze(-1))
        found = intervals(measured(predictions, draws, ["ece"])[""], wanted=["ece"])["ece"]
        errors.append(found.estimate)
        floors.append(found.floor)
    assert len(set(floors)) == 1  # it depends on the confidences alone
    assert np.mean(errors) == approx(floors[0].mean, abs=4 * np.std(errors) / 60**0.5)
    assert np.mean([floors[0].low <= error <= floors[0].high for error in errors]) >= 0.85


def test_over_seeds_it_is_the_mean_of_theirs():
    """At the temperature that each was given; the interval itself does not change with it."""
    networks = [NetworkPredictions(case(400, seed=seed), 1.0 + seed / 2) for seed in range(3)]
    wanted = ["accuracy", "ece", "ts_ece"]
    found = mean_over_seeds(networks, wanted, 200)
    for name, prefixed in (("ece", False), ("ts_ece", True)):
        single = []
        for predictions, temperature in networks:
            logits = predictions.logits / temperature if prefixed else predictions.logits
            part = measured(
                Predictions(logits, predictions.labels), Draws.of(400, 200, 0), ["ece"]
            )[""]
            single.append(intervals(part, wanted=["ece"])["ece"].floor)
        assert found[name].floor == approx(np.mean(single, axis=0))
        assert floors_over_seeds(networks, [name], 200)[name] == approx(found[name].floor)
    assert found["accuracy"].floor is None and "accuracy" not in floors_over_seeds(
        networks, wanted, 200
    )
    assert floors_over_seeds([], wanted) == {}
