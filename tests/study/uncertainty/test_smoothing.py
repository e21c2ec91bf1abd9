"""Smooth ECE of resamples, against its definition on their rows; and what a temperature
removes, as a difference."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pytest import approx

from benchmarks.experiments import coverage, populations
from study.uncertainty.bootstrap import intervals_of, measured, values_of
from study.uncertainty.methods import NetworkPredictions, compare_methods, mean_over_seeds
from study.uncertainty.resampling import Draws, SampleTerms
from study.uncertainty.smoothing import LEAST, Smoothing
from study.uncertainty.temperature import temperatures
from tests import references
from tests.cases import random_case
from trainables import metrics
from trainables.groups import FOLDS
from trainables.metrics.shared.post_hoc import cross_fitted
from trainables.metrics.smooth import smooth_calibration_error_at
from trainables.outputs.predictions import Predictions

SMOOTH = ["smooth_ece", "ts_smooth_ece"]
REMOVED = ["calibration_nll", "calibration_brier"]


def case(samples=400, seed=0):
    """Over-confident, mostly right."""
    source = np.random.default_rng(seed)
    logits = populations.evidence(14.0, samples, source)
    labels = populations.drawn_labels(populations.softmax(logits / 1.5), source)
    return Predictions(torch.from_numpy(logits), torch.from_numpy(labels))


def rows_of(draws, number):
    return np.repeat(np.arange(len(draws.counts)), draws.counts[:, number].astype(int))


@pytest.mark.parametrize(
    "logits", [random_case((300, 10, 3.0))[0], random_case((300, 3, 0.2))[0], case(300).logits]
)
def test_the_estimate_is_the_metric(logits):
    predictions = Predictions(logits, case(300).labels.clamp(max=logits.shape[1] - 1))
    expected = predictions.evaluate(also=SMOOTH)
    parts = measured(predictions, Draws.of(300, 5, 0), SMOOTH)
    for name, part in zip(SMOOTH, parts.values(), strict=True):
        assert part.estimates()["smooth_ece"] == approx(expected[name], abs=2e-5)


def test_each_resample_has_the_error_of_its_rows_at_the_bandwidth_of_the_whole():
    predictions, draws = case(120), Draws.of(120, 3, 0)
    logits, labels = predictions.logits, predictions.labels
    whole = metrics.find("smooth_ece")(logits, labels).item()
    found = values_of(measured(predictions, draws, SMOOTH), SMOOTH)
    for number in range(3):
        rows = rows_of(draws, number)
        expected = references.smooth_ece_at(logits[rows], labels[rows], whole)
        assert found["smooth_ece"][number] == approx(expected, abs=2e-5)


def test_after_a_temperature_that_each_resample_fits():
    predictions, draws = case(), Draws.of(400, 4, 0)
    logits, labels = predictions.logits, predictions.labels
    whole = metrics.find("smooth_ece")(cross_fitted(logits, labels), labels).item()
    fitted = np.exp(temperatures(logits.numpy(), labels.numpy(), draws.counts))
    found = values_of(measured(predictions, draws, SMOOTH), SMOOTH)["ts_smooth_ece"]
    for number in range(4):
        rows = rows_of(draws, number)
        scaled = logits[rows] / torch.from_numpy(fitted[rows % FOLDS, number])[:, None]
        assert found[number] == approx(
            smooth_calibration_error_at(scaled, labels[rows], whole).item(), abs=1e-3
        )


def test_draws_of_calibrated_labels_are_smoothed_alike():
    predictions, draws = case(200), Draws.of(200, 4, 0)
    probs = predictions.logits.softmax(dim=-1).numpy()
    sigma = metrics.find("smooth_ece")(predictions.logits, predictions.labels).item()
    found = measured(predictions, draws, ["smooth_ece"])[""].calibrated.calibration(["smooth_ece"])[
        "smooth_ece"
    ]
    for number in range(4):
        # The label is the most likely class, else another.
        hit = draws.chances[:, number] < probs.max(axis=1)
        labels = torch.from_numpy(np.where(hit, probs.argmax(axis=1), probs.argmin(axis=1)))
        expected = smooth_calibration_error_at(predictions.logits, labels, sigma).item()
        assert found[number] == approx(expected, abs=2e-5)


def test_a_narrow_bandwidth_and_a_calibrated_split():
    """Modes of a narrow Gaussian go to thousands; a split that is calibrated exactly
    is smoothed at LEAST."""
    smoothing = Smoothing(LEAST)
    confidence = np.random.default_rng(0).random(50)
    modes = smoothing._modes(confidence)
    k = np.arange(len(modes))[:, None]
    assert len(modes) > 1700 and np.abs(modes - np.cos(math.pi * k * confidence)).max() < 1e-9
    even = SampleTerms.of(np.zeros((4, 2)), np.array([0, 1, 0, 1]))
    assert Smoothing.of(even.confidence, even.hits).bandwidth == LEAST
    smoothed = replace(even, smoothing=smoothing)
    assert np.abs(smoothed.total().smooth_gaps).sum() < 1e-12


def test_smooth_ece_costs_nothing_where_it_is_not_wanted():
    parts = measured(case(), Draws.of(400, 5, 0), ["ece"])
    assert parts[""].resamples.smooth_gaps.shape == parts[""].calibrated.smooth_gaps.shape == (0, 5)


def test_what_a_temperature_removes_is_a_paired_difference():
    predictions, draws = case(), Draws.of(400, 200, 0)
    names = [*REMOVED, "nll", "ts_nll", "brier", "ts_brier"]
    parts = measured(predictions, draws, REMOVED)
    values = values_of(parts, names)
    expected = predictions.evaluate(also=REMOVED)
    found = intervals_of(parts, REMOVED, 0.9)
    assert found.keys() == set(REMOVED)
    for name, score in zip(REMOVED, ("nll", "brier"), strict=True):
        moved = values[score] - values[f"ts_{score}"]
        assert np.array_equal(values[name], moved)
        assert found[name].estimate == approx(expected[name], abs=1e-9)
        assert (found[name].low, found[name].high) == approx(
            tuple(np.quantile(moved, [0.05, 0.95]))
        )
        # over-confident by a temperature of 1.5.
        assert 0 < found[name].low < expected[name] < found[name].high


def test_with_hardly_a_wrong_prediction_there_is_no_interval():
    """What one more would cost is not in any resample; the sum of gaps is
    widened instead, as for ECE."""
    labels = torch.randint(10, (287,), generator=torch.Generator().manual_seed(0))
    sure = 14.0 * torch.nn.functional.one_hot(labels, 10).double()
    parts = measured(Predictions(sure, labels), Draws.of(287, 100, 0), [*REMOVED, "smooth_ece"])
    found = intervals_of(parts, [*REMOVED, "smooth_ece"])
    z2 = 1.959964**2
    assert found.keys() == {"smooth_ece"}
    assert found["smooth_ece"].high == approx(
        z2 / (287 + z2) + found["smooth_ece"].estimate, abs=1e-6
    )


def test_methods_are_compared_by_what_a_temperature_removes():
    """Networks with a temperature of their own: the seeds' values are the two scores'
    differences."""
    networks = {
        name: [NetworkPredictions(Predictions(scale * case(200).logits, case(200).labels), 1.4)] * 2
        for name, scale in (("good", 1.0), ("sure", 1.5))
    }
    found = compare_methods(networks, ["calibration_nll", "nll", "ts_nll"], resamples=50)
    for name, network in ((name, of[0]) for name, of in networks.items()):
        values = network.predictions.evaluate_at(network.temperature)
        expected = values["nll"] - values["ts_nll"]
        assert found["calibration_nll"].rows[name].values[0] == approx(expected, abs=1e-9)
        assert mean_over_seeds([network], ["calibration_nll"])[
            "calibration_nll"
        ].estimate == approx(expected, abs=1e-9)
    parts = [found[name].rows["sure"].resampled for name in ("calibration_nll", "nll", "ts_nll")]
    assert parts[0] == approx(parts[1] - parts[2])


@pytest.mark.slow
def test_the_interval_covers_the_error():
    """60 sets of 500; three standard errors are .084. More: docs/why/how-certain.md."""
    world = populations.too_sure(populations.LIFTS["sure"], size=5_000)
    found = coverage.coverage(world, 500, 60, ["smooth_ece"], 100)["smooth_ece"]
    assert min(found[:3]) >= 0.87, found


def test_the_truth_of_a_population_is_the_metric_of_its_labels():
    predictions = case()
    certain = torch.nn.functional.one_hot(predictions.labels, 10).double().numpy()
    found = populations.Population(predictions.logits.numpy(), certain)
    assert found.smooth_ece() == approx(
        metrics.find("smooth_ece")(predictions.logits, predictions.labels).item()
    )
    at = smooth_calibration_error_at(predictions.logits, predictions.labels, 0.1).item()
    assert found.smooth_ece(0.1) == approx(at)
