"""Intervals, floors and bands of samples that belong together, beside what
`test_against_groups_reference` checks: explicit rows, closed forms, and today's numbers."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pytest import approx
from scipy.stats import binomtest
from scipy.stats import t as student_t

from study.report.page_reliability import _bins
from study.reproduction.measured import Measure, Model, resampled_means
from study.store.recorded import Recorded
from study.uncertainty import bootstrap, smoothing
from study.uncertainty.bootstrap import (
    compare,
    differences_from,
    estimates_of,
    intervals_of,
    measured,
    resampled_names,
    values_of,
)
from study.uncertainty.equal_sizes import DRAWS, RESIZED, means_of_rows, rows_drawn
from study.uncertainty.methods import (
    Methods,
    NetworkPredictions,
    Seeds,
    compare_methods,
    floors_over_seeds,
    mean_over_seeds,
)
from study.uncertainty.reliability import diagram, reliability, statement
from study.uncertainty.resampling import Draws, draws_for, too_few
from tests.study.uncertainty import grouped_reference as slow
from tests.study.uncertainty.test_against_groups_reference import arrays, patients
from tests.study.uncertainty.test_equal_sizes import slow as error_of_rows
from trainables.metrics.shared.post_hoc import fit_temperature_by_nll
from trainables.metrics.smooth import smooth_calibration_error_at
from trainables.outputs.predictions import Arrays, Predictions
from trainables.problems import FieldError
from trainables.seeding import seed_of

EVERYTHING = resampled_names()


def twin(predictions, seed):
    """Another network of the same samples."""
    source = torch.Generator().manual_seed(seed)
    noise = torch.randn(predictions.logits.shape, generator=source, dtype=torch.float64)
    return Predictions(predictions.logits + noise, predictions.labels, predictions.groups)


def few_wrong(wrong_of, groups=20, rows=10, classes=7):
    """Groups of ten samples of which those in `wrong_of` {group: samples} have wrong ones.

    The label of a wrong sample is the least likely class.
    """
    source = np.random.default_rng(0)
    logits = np.sort(source.normal(size=(groups * rows, classes)), axis=1)[:, ::-1] * 2
    labels = np.zeros(groups * rows, dtype=np.int64)
    for group, wrong in wrong_of.items():
        labels[group * rows : group * rows + wrong] = classes - 1
    of_sample = np.repeat(np.arange(groups), rows)
    return Predictions(*map(torch.from_numpy, (logits.copy(), labels, of_sample)))


# ---- one sample a group --------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "temperature"), [(2, None), (7, 1.7)])
def test_groups_of_one_sample_change_no_bit(classes, temperature):
    given = patients(classes=classes)
    plain = Predictions(given.logits, given.labels)
    single = Predictions(given.logits, given.labels, torch.arange(len(given.labels)))
    sides = []
    for predictions in (plain, single):
        draws = draws_for(predictions, 60)
        parts = measured(predictions, draws, EVERYTHING, temperature)
        values = {name: found.tolist() for name, found in values_of(parts, EVERYTHING).items()}
        shown = intervals_of(parts, EVERYTHING)
        floors = {name: one.floor for name, one in shown.items()}
        networks = [NetworkPredictions(twin(predictions, seed), 1.3) for seed in range(4)]
        methods = compare_methods({"a": networks[:2], "b": networks[2:]}, EVERYTHING, 60)
        sides.append(
            (
                estimates_of(parts),
                values,
                shown,
                floors,
                {name: found.difference("a", "b") for name, found in methods.items()},
                mean_over_seeds(networks, EVERYTHING, 60),
                floors_over_seeds(networks, EVERYTHING, 60),
                predictions.evaluate(also=["calibration_nll", "smooth_ece", "ts_smooth_ece"]),
            )
        )
    assert sides[0] == sides[1]
    shown = (diagram(predictions) for predictions in (plain, single))
    for one, other in zip(*((each.raw, each.scaled) for each in shown), strict=True):
        assert all(
            np.array_equal(getattr(one, name), getattr(other, name))
            for name in ("counts", "confidence", "accuracy", "low", "high")
        )


# ---- what is resampled ---------------------------------------------------------------------------


def test_draws_are_of_groups_and_weigh_a_resample_as_the_sample():
    """Of the order of samples alone depends what a group's number is."""
    given = patients()
    draws = draws_for(given, 50)
    total = int(given.groups.max()) + 1
    assert draws.counts.shape == draws.chances.shape == draws.weights.shape == (total, 50)
    sizes = np.bincount(given.groups)
    assert sizes @ draws.weights == approx(np.full(50, len(given.labels)))
    by_counts = sizes @ draws.counts
    assert np.unique(by_counts).size > 10
    again = Draws.of(len(given.labels), 50, 0, given.groups.numpy())
    assert (again.counts == draws.counts).all() and (again.chances == draws.chances).all()
    assert draws.counts.mean() == 1 and draws.chances.mean() == approx(0, abs=5 / math.sqrt(1200))


@pytest.mark.parametrize("chunk", [7, 2**14])
def test_smooth_ece_of_a_resample_is_that_of_its_rows_at_the_bandwidth(chunk, monkeypatch):
    monkeypatch.setattr(smoothing, "CHUNK", chunk)
    given = patients()
    logits, labels, groups = arrays(given)
    draws = draws_for(given, 6)
    part = measured(given, draws, ["smooth_ece"])[""]
    whole = part.estimates()["smooth_ece"]
    found = part.resamples.metrics()["smooth_ece"]
    for number, drawn in enumerate(draws.counts.T):
        rows = slow.rows_of(groups, drawn)
        chosen = (torch.from_numpy(of[rows]) for of in (logits, labels))
        expected = smooth_calibration_error_at(*chosen, sigma=max(whole, smoothing.LEAST))
        assert found[number] == approx(float(expected), abs=5e-5)


def test_debiased_l2_has_a_value_and_no_interval():
    given = patients()
    parts = measured(given, draws_for(given, 50), EVERYTHING)
    plain = Predictions(given.logits, given.labels)
    expected = measured(plain, draws_for(plain, 5), ["debiased_l2"])
    name = "debiased_l2"
    assert estimates_of(parts)[name] == approx(estimates_of(expected)[name], abs=1e-12)
    found = intervals_of(parts, EVERYTHING)
    assert set(EVERYTHING) - found.keys() == {name, f"ts_{name}"}
    assert name not in values_of(parts, EVERYTHING)
    networks = [NetworkPredictions(twin(given, seed), 1.3) for seed in range(4)]
    for of in (
        compare_methods({"a": networks[:2], "b": networks[2:]}, EVERYTHING, 50),
        mean_over_seeds(networks, EVERYTHING, 50),
        floors_over_seeds(networks, EVERYTHING, 50),
    ):
        assert "ece" in of and name not in of


# ---- few wrong groups ----------------------------------------------------------------------------


def hull(share, groups, resampled):
    """All that resamples and Wilson's interval of as many samples as groups leave possible."""
    low, high = binomtest(round(share * groups), groups).proportion_ci(0.95, method="wilson")
    least, most = slow.percentiles(resampled, 0.95)
    return min(low, least), max(high, most)


def test_fractions_of_few_wrong_groups_are_as_uncertain_as_so_many_samples():
    """Two groups of twenty are wrong, with five of ten samples each: 95%, or 19 of 20."""
    given = few_wrong({3: 5, 8: 5})
    parts = measured(given, draws_for(given, 200), ["accuracy", "error", "top5_accuracy"])
    values = parts[""].resamples.metrics()
    found = intervals_of(parts, values)
    assert found["accuracy"][1:] == approx(hull(0.95, 20, values["accuracy"]))
    assert found["top5_accuracy"][1:] == approx(hull(0.95, 20, values["top5_accuracy"]))
    assert found["error"][1:] == approx([1 - end for end in found["accuracy"][:0:-1]])
    all_right = few_wrong({})
    parts = measured(all_right, draws_for(all_right, 50), ["accuracy"])
    low, high = binomtest(20, 20).proportion_ci(0.95, method="wilson")
    assert intervals_of(parts, ["accuracy"])["accuracy"][1:] == approx((low, high))


def test_each_fraction_counts_its_own_groups():
    """Every sample has a wrong prediction, but few a label that is not among the top five."""
    given = few_wrong(dict.fromkeys(range(20), 5))
    labels = given.labels.clone()
    labels[(labels == 6) & (given.groups > 1)] = 1  # the second most likely class
    given = Predictions(given.logits, labels, given.groups)
    parts = measured(given, draws_for(given, 200), ["accuracy", "top5_accuracy"])
    values = parts[""].resamples.metrics()
    found = intervals_of(parts, values)
    assert found["accuracy"][1:] == approx(slow.percentiles(values["accuracy"], 0.95))
    assert found["top5_accuracy"][1:] == approx(hull(0.95, 20, values["top5_accuracy"]))


def test_wrong_are_groups_with_a_wrong_sample():
    """Forty wrong samples of four groups are few; five of five groups are not."""
    few = few_wrong(dict.fromkeys(range(4), 10))
    parts = measured(few, draws_for(few, 100), ["ece", "nll", "brier"])
    found = intervals_of(parts, ["ece", "nll", "brier"])
    most = binomtest(4, 20).proportion_ci(0.95, method="wilson").high
    assert found.keys() == {"ece"}
    assert found["ece"].high >= found["ece"].estimate + most - 0.2 - 1e-9
    five = few_wrong(dict.fromkeys(range(5), 1))
    parts = measured(five, draws_for(five, 100), ["ece", "nll", "brier"])
    assert intervals_of(parts, ["ece", "nll", "brier"]).keys() == {"ece", "nll", "brier"}


# ---- too few groups, other groups ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "rows", "said"),
    [
        (10, 10, ""),
        (9, 10, "9 patients are too few to resample; 10 are needed"),
        (1, 30, "1 patient is too few to resample; 10 are needed"),
        (9, 1, "9 images are too few to resample; 10 are needed"),
        (10, 1, ""),
    ],
)
def test_how_many_groups_are_too_few(groups, rows, said):
    assert too_few(few_wrong({}, groups, rows), "patients", "images") == said


def test_too_few_groups_have_no_intervals():
    networks = [NetworkPredictions(twin(patients(groups=9), seed), 1.3) for seed in range(4)]
    assert mean_over_seeds(networks, EVERYTHING, 50) == {}
    assert floors_over_seeds(networks, EVERYTHING, 50) == {}
    with pytest.raises(FieldError, match="bootstrap: 9 patients are too few to resample"):
        compare_methods({"a": networks[:2], "b": networks[2:]}, ["ece"], 50, unit="patients")


def test_methods_and_trials_must_have_the_same_groups(monkeypatch):
    given = patients()
    other = Predictions(given.logits, given.labels, given.groups.flip(0))
    several = [NetworkPredictions(each) for each in (given, twin(given, 1))]
    with pytest.raises(FieldError, match="b: its groups differ from those of a; they cannot be"):
        compare_methods({"a": several, "b": [NetworkPredictions(other)] * 2}, ["ece"], 50)
    recorded = Recorded(unit="patients", groups={"validation": 24}, sizes={"validation": 284})
    study = SimpleNamespace(recorded=recorded, objectives=[])
    stored = {"one": given, "two": twin(given, 2), "other": other}
    monkeypatch.setattr(
        bootstrap, "stored_predictions", lambda study, record, keep=False: stored[record.name]
    )
    one, two, different = (SimpleNamespace(name=name) for name in stored)
    with pytest.raises(FieldError, match="other: its validation groups differ from those of one"):
        compare(study, one, different, 50)
    assert compare(study, one, two, 50).keys() >= {"accuracy", "ece", "nll", "ts_ece"}
    assert "debiased_l2" not in compare(study, one, two, 50)
    assert not {"debiased_l2", "ts_debiased_l2"} & set(resampled_names(study))
    with pytest.raises(FieldError, match="bootstrap: debiased_l2 has no interval on these samples"):
        differences_from(study, one, [two], "debiased_l2", 50)


def test_a_difference_is_of_the_same_resampled_groups(monkeypatch):
    given = patients()
    stored = {"one": given, "two": twin(given, 2)}
    monkeypatch.setattr(
        bootstrap, "stored_predictions", lambda study, record, keep=False: stored[record.name]
    )
    study = SimpleNamespace(recorded=Recorded(), objectives=[])
    found = compare(study, *(SimpleNamespace(name=name) for name in stored), 40)
    differences = {"accuracy": [], "nll": []}
    for drawn in draws_for(given, 40).counts.T:
        rows = slow.rows_of(given.groups.numpy(), drawn)
        first, second = (
            slow.measured(each.logits.numpy()[rows], each.labels.numpy()[rows], rows % 15)
            for each in stored.values()
        )
        for name, values in differences.items():
            values.append(first[name] - second[name])
    for name, values in differences.items():
        ends = slow.percentiles(values, slow.widened(0.95, given.groups.numpy()))
        assert found[name][3:] == approx(ends, abs=1e-5)


def test_trials_on_images_with_masks_are_compared_by_image_in_miou_too(monkeypatch):
    """Its images are its groups: there are as many as the split has."""
    given = patients()
    stored = {"one": given, "two": twin(given, 2)}
    monkeypatch.setattr(
        bootstrap, "stored_predictions", lambda study, record, keep=False: stored[record.name]
    )
    images = {"validation": 24}
    recorded = Recorded(marked=True, unit="images", groups=images, sizes=images)
    study = SimpleNamespace(recorded=recorded, objectives=[])
    found = compare(study, *(SimpleNamespace(name=name) for name in stored), 40)
    assert "miou" in found and not {"ts_miou", "miou_without_0"} & found.keys()
    assert "debiased_l2" not in {*found, *resampled_names(study)}
    differences = []
    for drawn in draws_for(given, 40).counts.T:
        rows = slow.rows_of(given.groups.numpy(), drawn)
        first, second = (
            slow.miou(each.logits.numpy()[rows], each.labels.numpy()[rows])
            for each in stored.values()
        )
        differences.append(first - second)
    ends = slow.percentiles(differences, slow.widened(0.95, given.groups.numpy()))
    assert found["miou"][3:] == approx(ends, abs=1e-5)


# ---- diagrams, sizes, temperatures of papers -----------------------------------------------------


def test_means_over_seeds_of_few_groups_differ_as_students_t_says():
    """Two methods whose seeds are one network each: the t interval of a mean of 12 group means."""
    source = np.random.default_rng(8)
    apart = source.normal(size=12)
    counts = source.multinomial(12, np.full(12, 1 / 12), size=200_000)
    resampled = (counts @ apart / 12)[None].repeat(2, axis=0)
    nothing = np.zeros_like(resampled)
    rows = {
        "one": Seeds(np.full(2, apart.mean()), resampled),
        "other": Seeds(np.zeros(2), nothing),
    }
    estimate, low, high = Methods(rows, groups=12).difference("one", "other")
    expected = student_t.interval(0.95, 11, apart.mean(), apart.std(ddof=1) / math.sqrt(12))
    assert estimate == approx(apart.mean()) and (low, high) == approx(expected, rel=0.02)


def test_the_grey_band_is_of_groups_whose_residuals_have_random_signs():
    """Beside signs drawn here: quantiles of 20,000 draws; and where labels drawn one by one vary
    more, it is as wide as theirs."""
    given = patients(rows=900, groups=40, seed=5)
    logits, labels, groups = arrays(given)
    found = reliability(given.arrays)
    confidence, hits = slow.top_label(logits, labels)
    bins = slow.width_bin(confidence)
    source = np.random.default_rng(9)
    signs = source.choice([-1, 1], size=(20_000, 40))
    for place, number in enumerate(found.numbers):
        inside = bins == number
        assert found.counts[place] == inside.sum()
        of_group = [(hits - confidence)[inside & (groups == group)].sum() for group in range(40)]
        drawn = confidence[inside].mean() + signs @ np.array(of_group) / inside.sum()
        low, high = slow.percentiles(drawn, 0.95)
        labels = source.random((20_000, inside.sum())) < confidence[inside]
        least, most = slow.percentiles(labels.mean(axis=1), 0.95)
        reach = 0.05 * (high - low) + 1e-9
        assert found.low[place] == approx(min(max(low, 0), least), abs=reach)
        assert found.high[place] == approx(max(min(high, 1), most), abs=reach)
    assert "the residuals of its patients with random signs, whichever" in statement("patients")
    assert "labels drawn from them" in statement()


def test_the_page_has_the_ends_of_the_band_and_the_same_bins_outside():
    """In counts of hits, which are between whole numbers there."""
    given = patients(rows=900, groups=40, seed=5)
    for times in (0.3, 1.0, 3.0):
        found = reliability(given.arrays._replace(logits=given.arrays.logits * times))
        _, counts, _, hits, low, high = np.array(_bins(found)["bins"]).T
        assert ((hits < low) | (hits > high)).tolist() == found.outside.tolist()
        assert low / counts == approx(found.low, abs=1e-4)
        assert high / counts == approx(found.high, abs=1e-4)


def test_a_bin_of_one_group_is_never_outside_its_band():
    source = np.random.default_rng(0)
    confidence = np.repeat(np.arange(7, 15) / 15 + 0.03, 20)
    logits = np.log(np.stack([confidence, 1 - confidence], axis=1))
    labels = (source.random(160) < 0.4).astype(np.int64)
    groups = np.repeat(np.arange(8), 20)
    found = reliability(Arrays(logits, labels, groups, None))
    assert len(found.numbers) == 8 and not found.outside.any()


@pytest.mark.parametrize("name", RESIZED)
def test_a_smaller_split_of_whole_groups(name):
    given = patients(rows=130, groups=14, classes=4)
    logits, labels, groups = arrays(given)
    rows = rows_drawn(len(labels), 72, given.groups)
    assert len(rows) == DRAWS
    for row in rows:
        chosen = set(groups[row])
        assert len(chosen) == 7  # half the groups
        assert sorted(row) == [place for place, group in enumerate(groups) if group in chosen]
    expected = np.mean([error_of_rows(name, logits[row], labels[row]) for row in rows[:8]])
    assert means_of_rows(logits, labels, rows[:8], [name]) == {name: approx(expected, abs=1e-9)}


def test_temperatures_of_papers_are_fitted_on_resampled_groups():
    given = patients()
    asked = [Measure("temperature", "nll")]
    (found,) = resampled_means([Model(given, given)], asked, 12).values()
    expected = []
    seed = seed_of(0, "validation split")
    draws = Draws.of(len(given.labels), 12, seed, given.groups)
    for drawn in draws.counts.T:
        rows = slow.rows_of(given.groups.numpy(), drawn)
        expected.append(fit_temperature_by_nll(given.logits[rows], given.labels[rows]))
    assert found == approx(np.array(expected), rel=1e-3)
