"""The bootstrap against resamples measured one at a time, closed forms, and
simulations with known truth."""

import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from pytest import approx

from benchmarks.experiments import coverage, populations
from study.analysis.pareto import front
from study.analysis.ranking import Ranking
from study.answer import choice
from study.report.front_figure import draw_front
from study.schema.objective import Objective
from study.store.files import stored_predictions
from study.store.recorded import Recorded
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, trial_directory
from study.uncertainty.bootstrap import analyse, compare, differences_from, front_shares, measured
from study.uncertainty.consistency import calibrated_sums
from study.uncertainty.intervals import intervals, wilson
from study.uncertainty.resampling import Draws, SampleTerms
from study.uncertainty.temperature import temperatures
from tests import references
from tests.cases import random_case
from tests.study.made import trials_of
from trainables import metrics
from trainables.groups import FOLDS
from trainables.metrics.binned import ReliabilityBins, debiased_square, equal_mass_index
from trainables.metrics.scores import top_label
from trainables.metrics.shared import post_hoc
from trainables.outputs.attempts import attempt_directory
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

ACCURACY, ECE, NLL = (
    Objective("accuracy", "maximize"),
    Objective("ece", "minimize"),
    Objective("nll", "minimize"),
)
EVERYTHING = [prefix + name for name in metrics.stored() for prefix in ("", "ts_")]


def case(samples=400, classes=7, seed=0):
    """Predictions as networks make them: sure, mostly right, over-confident."""
    source = np.random.default_rng(seed)
    logits = populations.evidence(14.0, samples, source)[:, :classes].copy()
    labels = populations.drawn_labels(populations.softmax(logits / 1.5), source)
    return Predictions(torch.from_numpy(logits), torch.from_numpy(labels))


def resample(predictions, draws, number):
    """The rows of a resample, by their places in the sample."""
    return np.repeat(np.arange(len(predictions.labels)), draws.counts[:, number].astype(int))


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 7, 10])
def test_estimates_are_the_metrics(classes):
    logits, labels = random_case((300, classes, 3.0))
    logits[5] = 0.0  # equal logits
    logits[6, 1] = 400.0  # a confidence of exactly 1
    predictions = Predictions(logits, labels)
    expected = predictions.evaluate()
    parts = measured(predictions, Draws.of(300, 5, 0), EVERYTHING)
    found = {
        prefix + name: value
        for prefix, part in parts.items()
        for name, value in part.estimates().items()
    }
    assert found.keys() == {name for name in expected if "smooth" not in name}
    assert all(found[name] == approx(expected[name], abs=1e-9) for name in found)


def test_each_resample_is_measured_as_its_rows_would_be():
    predictions, draws = case(), Draws.of(400, 20, 0)
    wanted = [*EVERYTHING, "miou", "miou_without_0"]
    found = measured(predictions, draws, wanted)[""].resamples.metrics()
    assert set(wanted) - found.keys() == {f"ts_{name}" for name in metrics.stored()}
    confidence, hits = top_label(predictions.logits, predictions.labels)
    index = equal_mass_index(confidence, 15)  # those bins keep their edges
    for number in range(20):
        rows = resample(predictions, draws, number)
        drawn = predictions.logits[rows], predictions.labels[rows]
        expected = metrics.measure_stored(*drawn, also=wanted)
        bins = ReliabilityBins.collect(confidence[rows], hits[rows], index[rows])
        expected["adaptive_ece"] = float(bins.share.dot(bins.gap))
        expected["debiased_l2"] = float(debiased_square(bins).clamp(min=0).sqrt())
        for name, values in found.items():
            assert values[number] == approx(
                expected[name], abs=1e-4 if name == "debiased_l2" else 1e-5
            ), name


def test_temperatures_are_fitted_in_each_resample_without_copies_across_folds():
    predictions, draws = case(), Draws.of(400, 6, 0)
    logits, labels = predictions.logits, predictions.labels
    fitted = temperatures(logits.numpy(), labels.numpy(), draws.counts)
    parts = measured(predictions, draws, EVERYTHING)
    found = parts["ts_"].resamples.metrics()
    for number in range(6):
        rows = resample(predictions, draws, number)
        scaled = torch.empty_like(logits[rows])
        for fold in range(FOLDS):
            held = torch.from_numpy(rows % FOLDS == fold)  # by the place in the sample
            temperature = post_hoc.fit_temperature(logits[rows][~held], labels[rows][~held])
            assert fitted[fold, number] == approx(math.log(temperature), abs=1e-6)
            scaled[held] = logits[rows][held] / temperature
        expected = metrics.measure_stored(scaled, labels[rows])
        for name in ("accuracy", "nll", "brier"):
            assert found[name][number] == approx(expected[name], abs=1e-3), name
        assert found["ece"][number] == approx(expected["ece"], abs=0.01)


def hard_cases():
    """name: (logits, labels), each with something that a fit may stumble over."""
    logits, _ = random_case((60, 6, 3.0))
    right, second = logits.topk(2).indices.T
    likely = np.random.default_rng(0).random(60) < 0.7
    mixed = logits * torch.logspace(-3, 3, 60)[:, None]
    one_wrong = right.clone()
    one_wrong[0] = second[0]
    drawn = torch.from_numpy(np.where(likely, right, second))
    never = logits.masked_fill(logits < -2, -torch.inf)
    # Many of them stored as 0.
    impossible = torch.from_numpy(np.where(likely, right, logits.argmin(dim=1)))
    ties = torch.zeros(60, 200, dtype=torch.float64)
    ties[:, 0] = 8.0
    yield "all right", logits, right
    yield "all wrong", logits, logits.argmin(dim=1)
    yield "one wrong", logits, one_wrong
    yield "says nothing", 0.01 * logits, torch.arange(60) % 6
    yield "scales from 1e-3 to 1e3", mixed, drawn
    yield "tiny", 1e-3 * logits, drawn
    yield "huge", 1e3 * logits, drawn
    yield "stored zeros", never, impossible
    yield "equal classes", ties, torch.from_numpy(np.where(likely, 0, np.arange(60)))


def barely_right(gaps, wrong=0):
    """Two classes, the label ahead by each gap: with a prior, the cost may have
    two minima below T = 1."""
    logits = torch.zeros(len(gaps), 2, dtype=torch.float64)
    logits[:, 0] = torch.tensor(gaps, dtype=torch.float64)
    return logits, (torch.arange(len(gaps)) < wrong).long()


TWO_MINIMA = [
    ("barely right", *barely_right([0.06] * 12)),
    ("two clusters", *barely_right([0.02] * 20 + [3.0] * 5)),
    ("two clusters, an error", *barely_right([0.02] * 30 + [3.0] * 5, 1)),
    ("at the end of the range", *barely_right([0.005] * 100)),
]


@pytest.mark.parametrize(
    ("logits", "labels"),
    [pytest.param(*case, id=name) for name, *case in [*hard_cases(), *TWO_MINIMA]],
)
def test_temperatures_of_hard_resamples_are_those_of_the_single_fit(logits, labels):
    samples = len(labels)
    counts = Draws.of(samples, 8, 0).counts
    counts[:, 0] = 1  # the sample itself
    found = temperatures(logits.numpy(), labels.numpy(), counts)
    for number in range(8):
        rows = torch.from_numpy(np.repeat(np.arange(samples), counts[:, number].astype(int)))
        for fold in range(FOLDS):
            others = rows[rows % FOLDS != fold]
            expected = math.log(post_hoc.fit_temperature(logits[others], labels[others]))
            assert found[fold, number] == approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("logits", "labels"), [pytest.param(*case, id=name) for name, *case in TWO_MINIMA]
)
def test_temperatures_of_resamples_are_at_the_lowest_point_of_a_dense_grid(logits, labels):
    counts = Draws.of(len(labels), 1, 0).counts
    found = temperatures(logits.numpy(), labels.numpy(), counts)
    rows = np.repeat(np.arange(len(labels)), counts[:, 0].astype(int))
    for fold in (0, FOLDS - 1):
        others = rows[rows % FOLDS != fold]
        case = logits[others], labels[others]
        _, least = references.fit_temperature_with_prior(*case)
        assert references.cost_of_temperature(*case, math.exp(found[fold, 0])) <= least + 1e-9


def test_temperature_ends_where_the_range_does():
    """Barely right and surely wrong samples, so many that the prior does not count."""
    for gap, count, end in ((0.001, 1000, post_hoc.LOWEST), (-30.0, 100_000, post_hoc.HIGHEST)):
        logits = np.tile([gap, 0.0], (count, 1))
        labels = np.zeros(count, np.int64)
        found = temperatures(logits, labels, Draws.of(count, 3, 0).counts)
        assert np.exp(found) == approx(end)


def test_calibrated_labels_come_by_their_probabilities():
    logits, labels = random_case((40, 5, 1.0))
    table = SampleTerms.of(logits.numpy(), labels.numpy())
    draws = Draws.of(40, 20_000, 0)
    gaps = calibrated_sums(table, draws.chances).class_gaps
    probs, cells = table.probs.ravel(), table.cells.ravel()
    variance = np.bincount(cells, probs * (1 - probs), len(gaps))  # of independent labels
    assert gaps.mean(axis=1) == approx(0, abs=0.05)
    assert gaps.var(axis=1) == approx(variance, abs=0.1)


def test_wilson_solves_its_equation_and_is_honest_at_the_ends():
    low, high = wilson(0.9, 50)
    for end in (low, high):
        assert abs(0.9 - end) == approx(1.959964 * math.sqrt(end * (1 - end) / 50), rel=1e-6)
    assert wilson(1.0, 100) == approx((100 / (100 + 1.959964**2), 1.0))


# ---- shares --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "objectives", [(ECE,), (ACCURACY, ECE), (ACCURACY, ECE, NLL)], ids=["one", "two", "three"]
)
def test_shares_count_the_fronts_of_the_resamples(objectives):
    source = np.random.default_rng(0)
    values = {
        f"focal/{k:04d}": {o.metric: source.integers(0, 5, 50) / 4 for o in objectives}
        for k in range(12)
    }  # a lattice: many equals
    counts = dict.fromkeys(values, 0)
    for resample in range(50):
        measured = [
            {metric: each[resample] for metric, each in of_trial.items()}
            for of_trial in values.values()
        ]
        records = [
            TrialRecord("focal", k, "complete", {}, of_trial) for k, of_trial in enumerate(measured)
        ]
        for record in front(records, objectives):
            counts[record.name] += 1
    assert front_shares(values, objectives) == approx(
        {name: count / 50 for name, count in counts.items()}
    )


# ---- a study -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Read only. Four trials with predictions: the second is the first's twin, the third is
    poor, the fourth failed."""
    plain = {"name": "made", "methods": [{"label": "focal"}], "trials": 4, "ledger": None}
    plain["objectives"] = [
        {"metric": each.metric, "direction": each.direction} for each in (ACCURACY, ECE)
    ]
    folder = tmp_path_factory.mktemp("made")
    made = StudyFolder(folder, plain, Recorded(sizes={"validation": 200}, majority=0.0))
    good, noise = case(200), torch.from_numpy(np.random.default_rng(1).normal(size=(200, 7)))
    records = []
    for number, predictions in enumerate(
        [good, good, replace(good, logits=good.logits + 6 * noise)]
    ):
        directory = attempt_directory(trial_directory(folder, "focal", number), 1)
        directory.mkdir(parents=True)
        digest = predictions.save(directory / "predictions.npz")
        found = predictions.evaluate()
        records.append(
            TrialRecord(
                "focal", number, "complete", {}, found, 1, digests={"predictions.npz": digest}
            )
        )
    return made, [*records, TrialRecord("focal", 3, "failed", {}, reason="loss is nan")]


@pytest.fixture(scope="module")
def analysis(study):
    return analyse(*study, 100)


def test_analysis_of_a_study(study, analysis):
    (made, records), found = study, analysis
    assert found.intervals.keys() == {"focal/0000", "focal/0001", "focal/0002"}
    assert found.shares == {"focal/0000": 1.0, "focal/0001": 1.0, "focal/0002": 0.0}
    assert found.intervals["focal/0000"] == found.intervals["focal/0001"]
    for record in records[:3]:
        for name, interval in found.intervals[record.name].items():
            assert interval.estimate == approx(record.metrics[name], abs=1e-9)
            assert 0 <= interval.low <= interval.high
    assert analyse(made, records, 100) == found  # the seed is all there is to it
    assert analyse(made, records[3:], 100).shares == {}


def test_twins_do_not_differ_and_a_poor_trial_does(study):
    made, (one, twin, poor, _) = study
    assert all(found[2:] == (0, 0, 0) for found in compare(made, one, twin, 200).values())
    found = compare(made, one, poor, 200)
    assert found["accuracy"].low > 0 > found["ece"].high
    assert found["nll"].estimate == approx(one.metrics["nll"] - poor.metrics["nll"], abs=1e-9)


def test_an_objective_that_is_not_resampled_leaves_intervals_without_shares(study):
    made, records = study
    plain = {**made.plain, "objectives": [{"metric": "skce", "direction": "minimize"}]}
    records = [replace(record, metrics={**record.metrics, "skce": 0.1}) for record in records]
    found = analyse(replace(made, plain=plain), records, 100)
    assert found.shares == {} and "ece" in found.intervals["focal/0000"]


def test_objectives_on_request_have_intervals_and_shares(study):
    """smooth ECE, and what a temperature removes: the twins alone are on the
    front, and do not differ."""
    made, records = study
    names = ["smooth_ece", "calibration_nll"]
    plain = {
        **made.plain,
        "objectives": [{"metric": name, "direction": "minimize"} for name in names],
    }
    predictions = [stored_predictions(made, record) for record in records[:3]]
    with_them = [
        replace(record, metrics={**record.metrics, **one.evaluate(also=names)})
        for record, one in zip(records, predictions, strict=False)
    ]
    found = analyse(asked := replace(made, plain=plain), with_them, 100)
    assert found.shares == {"focal/0000": 1.0, "focal/0001": 1.0, "focal/0002": 0.0}
    one, twin, poor = with_them
    assert found.intervals[one.name]["calibration_nll"].estimate == approx(
        one.metrics["calibration_nll"], abs=1e-9
    )
    assert found.intervals[one.name]["smooth_ece"].estimate == approx(
        one.metrics["smooth_ece"], abs=2e-5
    )
    for name in names:
        _, low, high = differences_from(asked, one, [twin, poor], name, 100)[poor.name]
        shown = compare(asked, poor, one, 100)[name]
        assert (low, high) == approx((shown.low, shown.high)) and low > 0
        assert choice._not_worse(Ranking(asked, trials_of(with_them)), name) == {one.name}


def test_missing_altered_and_strange_predictions_are_one_line(study, tmp_path):
    made, records = replace(study[0], directory=tmp_path), [*study[1]]
    shutil.copytree(study[0].directory, tmp_path, dirs_exist_ok=True)
    path = attempt_directory(trial_directory(tmp_path, "focal", 1), 1) / "predictions.npz"
    other = Predictions(case(200).logits, case(200, seed=1).labels)
    digest = other.save(path)
    with pytest.raises(FieldError, match=r"^focal/0001: .*digest differs"):
        analyse(made, records, 100)
    records[1] = replace(records[1], digests={"predictions.npz": digest})
    with pytest.raises(
        FieldError, match=r"^focal/0001: its validation labels differ from those of focal/0000"
    ):
        analyse(made, records, 100)
    path.unlink()
    with pytest.raises(FieldError, match=r"^focal/0001: .*predictions\.npz is missing"):
        # Opened anew: what a study has loaded of its front it keeps.
        analyse(replace(made), records, 100)


def test_what_is_not_worse_than_the_best_of_a_search(study):
    """The best, which stands for its twin, and not the poor one; by the very differences that
    `compare` shows."""
    made, records = study
    one, twin, poor = records[:3]
    found = differences_from(made, one, [twin, poor], "accuracy", 200)
    shown = {record.name: compare(made, record, one, 200)["accuracy"] for record in (twin, poor)}
    assert found == {
        one.name: (0, 0, 0),
        **{name: (each.estimate, each.low, each.high) for name, each in shown.items()},
    }
    assert choice._not_worse(Ranking(made, trials_of(records)), "accuracy") == {one.name}
    with pytest.raises(FieldError, match=r"^pick: skce has no interval"):
        choice._not_worse(Ranking(made, trials_of(records)), "skce")


def test_where_nearly_all_are_right_what_a_wrong_one_would_cost_is_not_known():
    """All of 287 right: Wilson's limit of the share that may be wrong in truth is z^2 /
    (N + z^2)."""
    labels = torch.randint(10, (287,), generator=torch.Generator().manual_seed(0))
    sure = 14.0 * torch.nn.functional.one_hot(labels, 10).float()
    draws = Draws.of(287, 200, 0)
    found = intervals(measured(Predictions(sure, labels), draws, EVERYTHING)[""])
    assert set(found) == {
        "accuracy",
        "error",
        "top5_accuracy",
        "ece",
        "adaptive_ece",
        "classwise_ece",
    }
    most = 1.96**2 / (287 + 1.96**2)
    assert found["error"].high == approx(most, rel=1e-3) and found["ece"].high == approx(
        most, rel=1e-2
    )
    # A wrong one more would make up for what the model is not sure of.
    assert found["ece"].low == found["classwise_ece"].low == 0
    five = labels.clone()
    five[:5] = (five[:5] + 1) % 10
    assert {"nll", "brier", "mce"} <= set(
        intervals(measured(Predictions(sure, five), draws, EVERYTHING)[""])
    )


def test_trials_to_compare_are_found_by_name(study):
    trials = trials_of(study[1])
    found = trials.named("focal/0001", "compare")
    assert found is trials.named("focal/1", "compare") is trials[1]
    with pytest.raises(
        FieldError, match=r"^compare: there is no trial 'focl/0001'. Did you mean 'focal/0001'\?$"
    ):
        trials.named("focl/0001", "compare")
    with pytest.raises(FieldError, match=r"^compare: focal/0003 is failed; only complete trials"):
        trials.named("focal/0003", "compare")


def test_the_figure_draws_the_intervals_and_says_so(study, analysis):
    made, records = study
    (axes,) = (figure := draw_front(records, made.objectives, "made", "200 samples", analysis)).axes
    bars = [line.get_xydata().tolist() for line in axes.lines if line.get_linewidth() == 0.6]
    accuracy, ece = (analysis.intervals["focal/0000"][name] for name in ("accuracy", "ece"))
    assert [[accuracy.low, ece.estimate], [accuracy.high, ece.estimate]] in [
        approx(np.array(bar)) for bar in bars
    ]
    assert [[accuracy.estimate, ece.low], [accuracy.estimate, ece.high]] in [
        approx(np.array(bar)) for bar in bars
    ]
    assert axes.get_ylim()[0] <= ece.low and axes.get_xlim()[1] >= accuracy.high
    assert "bars: 95% intervals" in figure.get_supxlabel()
    caption = draw_front(
        records, made.objectives, "made", "200 samples", replace(analysis, level=0.9)
    ).get_supxlabel()
    assert "bars: 90% intervals" in caption and "95%" not in caption


# ---- known truth ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_intervals_cover_a_known_truth():
    """100 sets: three standard errors of .95 are .066. The table is in docs/why/how-certain.md."""
    world = populations.too_sure(populations.LIFTS["unsure"], size=10_000)
    names = ("accuracy", "nll", "brier", "ece", "adaptive_ece")
    found = coverage.coverage(world, 500, 100, names, 250)
    for name in names:
        assert min(found[name][:3]) >= 0.88, (name, found[name])
    # The basic interval, united with percentiles, held the difference in half of the sets.
    assert found["ece"].wrong < 0.05 < found["ece"].told


@pytest.mark.slow
def test_two_models_of_equal_error_are_seldom_told_apart():
    """One has it in a single bin, one in all: it was called worse in every fifth set."""
    world = populations.equal_errors(0.85, 500)
    one, other = (truth["ece"] for truth in world.truths)
    assert one == approx(other, abs=coverage.EQUAL)
    found = coverage.coverage(world, 500, 100, ["ece"], 250)["ece"]
    assert found.wrong <= 0.1 and found.difference >= 0.88, found


@pytest.mark.slow
@pytest.mark.platform
def test_intervals_of_few_samples_cover_a_known_truth_after_a_temperature():
    world = populations.too_sure(populations.LIFTS["sure"], size=50_000)
    names = ("ts_nll", "ts_ece", "classwise_ece")
    for name, found in coverage.coverage(world, 287, 60, names, 200).items():
        assert min(found[:3]) >= 0.85, (name, found)


def test_the_truths_of_a_population_are_the_metrics_of_its_labels():
    """Labels that are certain: what is true is what is measured, by the
    metrics' own definitions."""
    predictions = case(450)  # thirty in each equal-mass bin
    certain = torch.nn.functional.one_hot(predictions.labels, 7).double().numpy()
    found = populations.Population(predictions.logits.numpy(), certain)
    measured_ones = metrics.measure_stored(predictions.logits, predictions.labels)
    truths = found.metrics()
    for name in set(truths) - {"debiased_l2"}:
        assert truths[name] == approx(measured_ones[name], abs=1e-9), name
    fitted = post_hoc.fit_temperature_by_nll(predictions.logits, predictions.labels)
    assert found.best_log_t() == approx(math.log(fitted), abs=1e-4)


def test_a_calibrated_model_has_intervals_from_zero_and_a_miscalibrated_one_not():
    draws = Draws.of(2000, 300, 0)
    calibrated, off = (populations.population(14.0, error, size=20_000) for error in (0.0, 0.08))
    source = np.random.default_rng(0)
    samples = (
        Predictions(*map(torch.from_numpy, each.sample(2000, source))) for each in (calibrated, off)
    )
    sure = [intervals(measured(each, draws, ["ece"])[""])["ece"] for each in samples]
    assert sure[0].low == 0 and sure[0].high < 0.03
    assert 0.04 < sure[1].low < 0.08 < sure[1].high
