"""A model's values in a table, against slow NumPy and fits on the rows of each resample."""

import math

import numpy as np
import pytest
import torch
from pytest import approx

from study.reproduction.measured import (
    MOST_TEMPERATURES,
    Measure,
    Model,
    by_ece,
    by_nll,
    measured,
    resampled_means,
    variance,
)
from study.uncertainty.resampling import Draws
from trainables.machine import one_torch_thread
from trainables.metrics.shared.cells import HIGHEST, LOWEST
from trainables.metrics.shared.post_hoc import fit_temperature_by_nll
from trainables.metrics.shared.temperature_of_ece import fit_temperature_by_ece
from trainables.outputs.predictions import Predictions
from trainables.seeding import seed_of


def predictions(
    seed: int, samples: int = 300, classes: int = 4, sharpness: float = 2.0, labels_of: int = 9
) -> Predictions:
    """Right in most samples, and surer than that by the factor `sharpness`."""
    labels = np.random.default_rng(labels_of).integers(classes, size=samples)
    logits = np.random.default_rng(seed).normal(size=(samples, classes))
    logits[np.arange(samples), labels] += 1.5
    return Predictions(torch.from_numpy(logits * sharpness).float(), torch.from_numpy(labels))


def slow_parts(given: Predictions, temperature: float):
    """Confidence, hit and NLL of each sample."""
    logits = given.logits.numpy().astype(float)
    labels = given.labels.numpy()
    odds = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
    probs = odds / odds.sum(axis=1, keepdims=True)
    own = probs[np.arange(len(labels)), labels]
    with np.errstate(divide="ignore"):
        return zip(probs.max(axis=1), logits.argmax(axis=1) == labels, -np.log(own), strict=True)


def slow_ece(given: Predictions, temperature: float, bins: int = 15) -> float:
    gaps = np.zeros(bins)
    for confidence, hit, _ in slow_parts(given, temperature):
        gaps[max(0, math.ceil(confidence * bins) - 1)] += hit - confidence
    return np.abs(gaps).sum() / len(given.labels)


def slow_grid(given: Predictions) -> float:
    return min((step / 10 for step in range(1, 101)), key=lambda at: slow_ece(given, at))


def rows_of(given: Predictions, counts: np.ndarray) -> Predictions:
    """A resample, as rows."""
    rows = torch.from_numpy(np.repeat(np.arange(len(counts)), counts.astype(int)))
    return Predictions(given.logits[rows], given.labels[rows])


def counts_of(samples: int, resamples: int) -> np.ndarray:
    return Draws.of(samples, resamples, 5).counts.astype(float)


def test_values_are_those_of_the_definitions() -> None:
    model = Model(predictions(1), predictions(2, samples=500, labels_of=3))
    names = ("ece", "nll", "error", "accuracy", "nll_wrong", "nll_right", "temperature")
    asked = [Measure(name, after) for name in names for after in (None, "nll", "ece_grid")]
    (found,) = measured([model], asked)
    temperatures = {
        None: 1.0,
        "nll": found["temperature", "nll"],
        "ece_grid": slow_grid(model.validation),
    }
    for after, temperature in temperatures.items():
        parts = list(slow_parts(model.test, temperature))
        wrong = [nll for _, hit, nll in parts if not hit]
        right = [nll for _, hit, nll in parts if hit]
        expected = {
            "ece": slow_ece(model.test, temperature),
            "nll": np.mean(wrong + right),
            "error": len(wrong) / 500,
            "accuracy": len(right) / 500,
            "nll_wrong": np.mean(wrong),
            "nll_right": np.mean(right),
            "temperature": temperature,
        }
        assert {name: found[name, after] for name in names} == approx(expected), after
    slow_nll = [
        np.mean(
            [nll for _, _, nll in slow_parts(model.validation, found["temperature", "nll"] * k)]
        )
        for k in (0.99, 1.0, 1.01)
    ]
    assert slow_nll[1] == min(slow_nll)


def test_distance_of_a_temperature_is_its_logarithm() -> None:
    sure = Model(predictions(1, sharpness=3.0), predictions(2))
    unsure = Model(predictions(1, sharpness=0.4), predictions(2))
    asked = [Measure("temperature", "nll"), Measure("temperature_distance", "nll")]
    for found in measured([sure, unsure], asked):
        temperature, distance = found.values()
        assert distance == approx(max(math.log(temperature), -math.log(temperature)))
        assert distance > 0.1


def test_a_convention_is_that_of_the_paper() -> None:
    """Theirs drops a confidence of exactly 1, and divides by what is left."""
    logits = torch.tensor([[40.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    test = Predictions(logits, torch.tensor([1, 0, 1, 1]))
    (found,) = measured([Model(test, test)], [Measure("sample_prioritization"), Measure("ece")])
    confidence = 1 / (1 + math.exp(-1))
    assert found[Measure("sample_prioritization")] == approx(abs(2 / 3 - confidence), rel=1e-6)
    assert found[Measure("ece")] == approx((1 + abs(2 - 3 * confidence)) / 4)


def test_what_is_not_defined_is_nan() -> None:
    right = Predictions(torch.eye(3) * 5, torch.arange(3))
    asked = [Measure("nll_wrong"), Measure("top5_accuracy"), Measure("nll_right")]
    (found,) = measured([Model(right, right)], asked)
    wrong, top5, nll = found.values()
    assert math.isnan(wrong)
    assert math.isnan(top5)
    assert nll == approx(math.log(1 + 2 * math.exp(-5)))


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0, 30.0])
def test_each_resample_has_the_temperature_of_its_rows(sharpness: float) -> None:
    given = predictions(1, sharpness=sharpness)
    counts = counts_of(300, 10)
    rows = [rows_of(given, column) for column in counts.T]
    with one_torch_thread():
        by_rows = [fit_temperature_by_ece(each.logits, each.labels) for each in rows]
    assert by_ece(given, counts).tolist() == by_rows
    by_rows = [fit_temperature_by_nll(each.logits, each.labels) for each in rows]
    assert by_nll(given, counts) == approx(by_rows, rel=2e-4)


def test_the_grid_is_searched_as_a_slow_loop_does() -> None:
    given = predictions(4, samples=60)
    counts = counts_of(60, 3)
    assert by_ece(given, counts).tolist() == [
        slow_grid(rows_of(given, column)) for column in counts.T
    ]


def test_the_smallest_of_equal_temperatures() -> None:
    """A lead of 10,000 nats: the confidence is 1 at every T, and so is the ECE of each."""
    labels = torch.tensor([0, 1, 1, 0, 1])
    given = Predictions(torch.eye(2)[[0, 1, 1, 0, 0]] * 10_000, labels)
    assert fit_temperature_by_ece(given.logits, labels) == 0.1
    assert by_ece(given, counts_of(5, 20)).tolist() == [0.1] * 20


def test_resamples_that_are_all_right_or_all_wrong_have_the_range_ends() -> None:
    logits = torch.tensor([[5.0, 0.0]] * 6)
    counts = np.array([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 0, 0]]).T
    given = Predictions(logits, torch.tensor([0, 0, 0, 1, 1, 1]))
    found = by_nll(given, counts)
    assert found[:2] == approx([LOWEST, HIGHEST])
    assert found[2] == approx(5 / math.log(3), rel=1e-4)  # three of four right: the odds are 3


def slow_variances(models, fit, resamples: int) -> tuple[float, float]:
    """Of the means over the models of T and of ECE, one resample after another."""
    samples = len(models[0].validation.labels)
    draws = Draws.of(samples, resamples, seed_of(0, "validation split"))
    means = []
    for column in draws.counts.T:
        values = []
        for model in models:
            rows = rows_of(model.validation, column)
            temperature = fit(rows.logits, rows.labels)
            values.append((temperature, slow_ece(model.test, temperature)))
        means.append(np.mean(values, axis=0))
    return tuple(np.var(means, axis=0, ddof=1))


@pytest.mark.parametrize(
    ("after", "fit"), [("nll", fit_temperature_by_nll), ("ece_grid", fit_temperature_by_ece)]
)
def test_variances_are_of_the_mean_over_seeds_in_common_resamples(after: str, fit) -> None:
    models = [Model(predictions(k), predictions(k + 10, samples=200)) for k in (1, 2)]
    asked = [Measure("temperature", after), Measure("ece", after)]
    resampled = resampled_means(models, [Measure("ece"), *asked], resamples=15)
    assert list(resampled) == asked and variance(resampled.get(Measure("ece"))) == 0.0
    found = {measure: variance(means) for measure, means in resampled.items()}
    with one_torch_thread():
        expected = slow_variances(models, fit, 15)
    assert [found[measure] for measure in asked] == approx(expected, rel=0.1)  # interpolated


def test_few_temperatures_are_not_interpolated() -> None:
    models = [Model(predictions(1, samples=1000), predictions(5))]
    measure = Measure("ece", "ece_grid")
    temperatures = by_ece(
        models[0].validation,
        Draws.of(1000, 20, seed_of(0, "validation split")).counts.astype(float),
    )
    assert len(np.unique(temperatures)) <= MOST_TEMPERATURES
    values = [slow_ece(models[0].test, at) for at in temperatures]
    (means,) = resampled_means(models, [measure], resamples=20).values()
    assert means == approx(np.array(values))
    assert variance(means) == approx(np.var(values, ddof=1))


def variances(models: list[Model], asked: list[Measure]) -> dict[Measure, float]:
    return {measure: variance(means) for measure, means in resampled_means(models, asked).items()}


def test_equal_models_have_the_variance_of_one() -> None:
    """Averaging seeds does not lower what the split does: they share it."""
    model = Model(predictions(1), predictions(2))
    asked = [Measure("temperature", "nll"), Measure("temperature_distance", "nll")]
    one = variances([model], asked)
    assert variances([model] * 4, asked) == approx(one)
    assert one == variances([model], asked)
    # |log T| of temperatures near T varies as they do, divided by T.
    temperature = measured([model], asked)[0][asked[0]]
    assert one[asked[1]] == approx(one[asked[0]] / temperature**2, rel=0.1)
