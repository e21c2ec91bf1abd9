"""Resampling of groups against its slow definition, whose rows are written out."""

import math

import numpy as np
import pytest
import torch
from pytest import approx

from benchmarks.experiments import coverage, populations
from study.uncertainty.bootstrap import measured
from study.uncertainty.intervals import intervals
from study.uncertainty.resampling import Draws
from study.uncertainty.temperature import temperatures
from tests.study.uncertainty import grouped_reference as slow
from trainables.groups import renumbered
from trainables.outputs.predictions import Predictions

BINNED = ("ece", "mce", "adaptive_ece", "classwise_ece")
OVERLAPS = ("miou", "miou_without_0")
METRICS = ("accuracy", "error", "top5_accuracy", "nll", "brier", *BINNED, *OVERLAPS)


def patients(rows=260, groups=24, classes=7, seed=0, noise=1.6):
    """Predictions of groups of unequal sizes whose rows lie among each other's.

    A group's logits and labels are alike; the model is right more often in some than in others.
    """
    source = np.random.default_rng(seed)
    found = renumbered(np.append(source.permutation(groups), source.integers(groups, size=rows)))
    logits = source.normal(size=(len(found), classes)) * 3 + source.normal(size=(groups, 1))[found]
    hard = source.uniform(0.3, noise, groups)[found][:, None]
    labels = (logits + hard * 2 * source.normal(size=logits.shape)).argmax(axis=1)
    return Predictions(*map(torch.from_numpy, (logits, labels, found)))


def arrays(predictions):
    return predictions.logits.numpy(), predictions.labels.numpy(), predictions.groups.numpy()


def draws_of(predictions, resamples):
    return Draws.of(len(predictions.labels), resamples, 0, predictions.groups)


CASES = [
    pytest.param(patients(), id="unequal groups"),
    pytest.param(patients(classes=2, seed=1), id="two classes"),
    pytest.param(patients(rows=8, groups=60, seed=2), id="nearly all groups of one row"),
    pytest.param(patients(rows=60, groups=12, seed=3, noise=0.4), id="hardly any wrong"),
]


@pytest.mark.parametrize("predictions", CASES)
def test_each_resample_is_of_the_rows_of_its_groups(predictions):
    """Each divided by its own number of rows; equal-mass bins keep the edges of the sample."""
    logits, labels, groups = arrays(predictions)
    draws = draws_of(predictions, 25)
    assert draws.counts.shape == (groups.max() + 1, 25)
    assert set(draws.counts.sum(axis=0)) == {groups.max() + 1}
    mass = slow.mass_bin(slow.top_label(logits, labels)[0])
    expected = slow.resampled(logits, labels, groups, draws.counts, mass)
    part = measured(predictions, draws, METRICS)[""]
    found = part.resamples.metrics(METRICS)
    assert found.keys() == set(METRICS) - ({"top5_accuracy"} if logits.shape[1] < 6 else set())
    for name, values in found.items():
        assert values == approx(expected[name], abs=2e-6), name


def masks(images=30, rows=25, classes=5, seed=6):
    """Predictions of the pixels of images. Two classes are seldom true: of one each image has the
    chance, the other is in the first image alone."""
    source = np.random.default_rng(seed)
    groups = np.repeat(np.arange(images), rows)
    labels = source.choice(classes - 2, size=len(groups))
    labels[source.random(len(groups)) < 0.02] = classes - 2
    labels[:3] = classes - 1
    logits = 2 * np.eye(classes)[labels] + source.normal(size=(len(groups), classes))
    logits[:, classes - 1] -= 3  # it is predicted where it is true, if at all
    logits[:3, classes - 1] += 4
    logits += source.normal(size=(images, classes))[groups] * [1, 1, 1, 0, 0]
    return Predictions(*map(torch.from_numpy, (logits, labels, groups)))


def test_a_resample_without_a_class_leaves_it_out_of_its_mean():
    predictions = masks()
    logits, labels, groups = arrays(predictions)
    draws = draws_of(predictions, 40)
    expected = slow.resampled(logits, labels, groups, draws.counts, groups % slow.BINS)
    assert 0 < (draws.counts[0] == 0).sum() < 40  # of these, some lack the first image
    found = measured(predictions, draws, ["miou", "ts_miou", "miou_without_0"])
    assert found.keys() == {"", "ts_"}
    for prefix, name in (("", "miou"), ("", "miou_without_0"), ("ts_", "miou")):
        values = found[prefix].resamples.metrics([name])[name]
        assert values == approx(expected[name], abs=2e-6), (prefix, name)


def test_a_study_that_asks_for_no_overlap_counts_no_regions():
    predictions = masks()
    part = measured(predictions, draws_of(predictions, 3), ["accuracy", "ece"])[""]
    assert not len(part.resamples.regions) and not {*OVERLAPS} & part.resamples.metrics().keys()


def test_there_is_no_overlap_of_classes_that_none_has():
    """Nor an interval of it, where a resample has none."""
    logits, labels = torch.tensor([[2.0, 0.0], [1.0, 0.0]] * 20), torch.zeros(40, dtype=torch.int64)
    predictions = Predictions(logits, labels)
    found = measured(predictions, Draws.of(40, 5, 0), OVERLAPS)[""]
    assert found.estimates(OVERLAPS) == {"miou": 1.0}
    logits[0], labels[1] = torch.tensor([0.0, 1.0]), 1
    found = measured(predictions, Draws.of(40, 50, 0), OVERLAPS)[""]
    assert found.estimates(OVERLAPS) == {"miou": approx(38 / 40 / 2), "miou_without_0": 0.0}
    assert set(found.resamples.metrics(OVERLAPS)) == {"miou"}


@pytest.mark.parametrize("predictions", CASES)
def test_the_sample_itself_is_measured_as_its_rows_are(predictions):
    logits, labels, _ = arrays(predictions)
    mass = slow.mass_bin(slow.top_label(logits, labels)[0])
    expected = slow.measured(logits, labels, mass)
    found = measured(predictions, draws_of(predictions, 2), METRICS)[""].estimates(METRICS)
    for name, value in found.items():
        assert value == approx(expected[name], abs=1e-9), name


# ---- after temperature scaling -------------------------------------------------------------------


@pytest.mark.parametrize("predictions", CASES)
def test_temperatures_of_a_resample_are_fitted_on_the_rows_of_other_folds(predictions):
    logits, labels, groups = arrays(predictions)
    draws = draws_of(predictions, 5)
    fitted = temperatures(logits, labels, draws.counts, groups)
    for number, drawn in enumerate(draws.counts.T):
        rows = slow.rows_of(groups, drawn)
        _, expected = slow.cross_fitted(logits, labels, groups, rows)
        for fold, log_t in expected.items():
            assert fitted[fold, number] == approx(log_t, abs=2e-6), (fold, number)


@pytest.mark.parametrize("predictions", CASES)
def test_after_temperature_each_resample_is_of_its_rows_at_its_temperatures(predictions):
    """So few resamples that none shares its temperature with another."""
    logits, labels, groups = arrays(predictions)
    draws = draws_of(predictions, 5)
    names = [f"ts_{name}" for name in METRICS]
    found = measured(predictions, draws, names)["ts_"].resamples.metrics(METRICS)
    whole, _ = slow.cross_fitted(logits, labels, groups, np.arange(len(labels)))
    edges = slow.mass_edges(slow.top_label(whole, labels)[0])
    for number, drawn in enumerate(draws.counts.T):
        rows = slow.rows_of(groups, drawn)
        scaled, _ = slow.cross_fitted(logits, labels, groups, rows)
        confidence, _ = slow.top_label(scaled, labels[rows])
        mass = np.searchsorted(edges, confidence, side="right")
        expected = slow.measured(scaled, labels[rows], mass)
        for name, values in found.items():
            assert values[number] == approx(expected[name], abs=1e-5), name


@pytest.mark.parametrize("predictions", CASES)
def test_stored_metrics_are_cross_fitted_by_group(predictions):
    logits, labels, groups = arrays(predictions)
    scaled, _ = slow.cross_fitted(logits, labels, groups, np.arange(len(labels)))
    assert predictions.cross_fitted().numpy() == approx(scaled, rel=1e-5, abs=1e-6)
    expected = slow.measured(scaled, labels, slow.mass_bin(slow.top_label(scaled, labels)[0]))
    found = predictions.evaluate(also=["calibration_nll", "calibration_brier"])
    for name in ("accuracy", "nll", "brier", *BINNED):
        assert found[f"ts_{name}"] == approx(expected[name], abs=1e-6), name
    plain = slow.measured(logits, labels, slow.mass_bin(slow.top_label(logits, labels)[0]))
    for name in ("nll", "brier"):
        removed = plain[name] - expected[name]
        assert found[f"calibration_{name}"] == approx(removed, abs=1e-6), name


# ---- perfect calibration and intervals -----------------------------------------------------------


@pytest.mark.parametrize("predictions", CASES)
def test_a_calibrated_model_is_drawn_by_the_signs_of_its_groups(predictions):
    logits, labels, groups = arrays(predictions)
    draws = draws_of(predictions, 40)
    assert set(draws.chances.ravel()) == {-1, 1}
    expected = slow.signed_errors(logits, labels, groups, draws.chances)
    part = measured(predictions, draws, BINNED)[""]
    drawn = part.calibrated.calibration(BINNED)
    for name in BINNED:
        assert drawn[name] == approx(expected[name], abs=2e-6), name
    for level in (0.95, 0.8):
        found = intervals(part, level, BINNED)
        for name, interval in found.items():
            assert interval.floor == approx(slow.floor(expected[name], level), abs=2e-6), name


@pytest.mark.parametrize("prefix", ["", "ts_"])
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_scores_have_percentiles_of_the_resampled_groups(prefix, level):
    """Fractions too, as groups with a wrong row are not few here."""
    predictions = patients(seed=4)
    logits, labels, groups = arrays(predictions)
    draws = draws_of(predictions, 8)
    values = {name: [] for name in ("accuracy", "error", "nll", "brier", "miou")}
    for drawn in draws.counts.T:
        rows = slow.rows_of(groups, drawn)
        scaled = slow.cross_fitted(logits, labels, groups, rows)[0] if prefix else logits[rows]
        of_rows = slow.measured(scaled, labels[rows], rows % slow.BINS)
        for name in values:
            values[name].append(of_rows[name])
    part = measured(predictions, draws, [prefix + name for name in values])[prefix]
    found = intervals(part, level, values)
    for name, resampled in values.items():
        ends = slow.percentiles(resampled, slow.widened(level, groups))
        assert found[name][1:] == approx(ends, abs=1e-5), name


@pytest.mark.parametrize(("times_best", "calibrated"), [(1.0, True), (0.4, False), (3.0, False)])
def test_an_error_starts_at_zero_where_the_model_may_be_calibrated(times_best, calibrated):
    """Logits at the temperature that fits them best, and at others."""
    predictions = patients(rows=900, groups=40, seed=5)
    temperature = times_best * math.exp(slow.fitted_log_t(*arrays(predictions)[:2]))
    scaled = predictions.logits / temperature
    predictions = Predictions(scaled, predictions.labels, predictions.groups)
    found = intervals(measured(predictions, draws_of(predictions, 99), BINNED)[""], wanted=BINNED)
    for name in ("ece", "adaptive_ece"):
        assert (found[name].low == 0) == calibrated, name


# ---- coverage ------------------------------------------------------------------------------------


def test_simulated_labels_come_by_their_probabilities_and_together():
    """Of two rows of a group, in what is more likely than not: a normal quadrant probability."""
    truth = np.tile([0.2, 0.5, 0.3], (200_000, 1))
    groups = np.repeat(np.arange(100_000), 2)
    labels = populations.labels_of_groups(truth, groups, np.random.default_rng(0))
    assert np.bincount(labels) / len(labels) == approx(truth[0], abs=0.005)
    likely = (labels == 1).reshape(-1, 2)
    expected = 2 / math.pi * math.asin(populations.CORRELATION)
    assert np.corrcoef(likely.T)[0, 1] == approx(expected, abs=0.02)


@pytest.mark.slow
def test_intervals_by_group_cover_a_known_truth():
    """100 sets: three standard errors of .95 are .066. The table is in docs/why/how-certain.md."""
    world = populations.too_sure(6.0, size=10_000)
    names = ("accuracy", "nll", "brier", "ece")
    found = coverage.coverage(world, populations.Design(60, 1, 40), 100, names, 200)
    for name in names:
        assert min(found[name][:3]) > 0.88, (name, found[name])
    assert found["ece"].wrong < 0.05
