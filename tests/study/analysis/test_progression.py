"""What figures show, against slow definitions: bands hit by hit, growth step by step,
importances of a law."""

import math

import numpy as np
import pytest
import torch
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial
from pytest import approx
from scipy import stats

from study.analysis import pareto
from study.analysis.importance import LEAST, searched
from study.analysis.progression import by_epoch, growth
from study.analysis.ranking import Ranking
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from study.uncertainty.reliability import consistency_band, diagram, reliability
from tests.study.made import OBJECTIVES, random_predictions, trials_of, unwritten_study
from trainables.metrics import measure_stored
from trainables.metrics.binned import ReliabilityBins
from trainables.metrics.scores import top_label
from trainables.metrics.shared.post_hoc import cross_fitted
from trainables.outputs.predictions import Predictions

NLL = Objective("nll", "minimize")


# ---- reliability ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("samples", "p"), [(1, 0.7), (40, 0.3), (500, 0.95), (2500, 0.6)])
def test_the_band_of_equal_confidences_is_that_of_the_binomial(samples, p):
    low, high = consistency_band(np.full(samples, p))
    assert (low, high) == approx(stats.binom(samples, p).ppf([0.025, 0.975]) / samples, abs=1e-12)


def random_confidences():
    """Of 1 to 1,200 samples: spread over a bin, nearly all certain, exactly certain, anywhere."""
    generator = np.random.default_rng(0)
    for samples in (1, 2, 7, 40, 300, 1200):
        yield generator.uniform(0.6, 2 / 3, samples)
        yield 1 - 10 ** generator.uniform(-9, -1, samples)
        yield np.where(generator.random(samples) < 0.9, 1.0, generator.uniform(14 / 15, 1, samples))
        yield generator.random(samples)


@pytest.mark.parametrize(
    "confidence", list(random_confidences()), ids=lambda confidence: str(len(confidence))
)
def test_the_band_is_that_of_labels_drawn_from_the_confidences(confidence):
    """By the definition: the chances of each number of hits, one sample after another."""
    chances = np.ones(1)
    for p in confidence:
        chances = np.convolve(chances, [1 - p, p])
    exact = [np.flatnonzero(chances.cumsum() >= share)[0] for share in (0.025, 0.975)]
    assert consistency_band(confidence) == approx(np.array(exact) / len(confidence), abs=1e-12)


def test_the_band_is_what_draws_give():
    """Broecker and Smith 2007; a hit more or less, of 20,000 draws."""
    generator = np.random.default_rng(1)
    confidence = generator.uniform(0.8, 1, 400)
    hits = (generator.random((20_000, 400)) < confidence).sum(axis=1)
    expected = np.quantile(hits, [0.025, 0.975], method="inverted_cdf")
    assert np.abs(np.array(consistency_band(confidence)) * 400 - expected).max() <= 1


def test_bins_are_those_of_the_definition_and_give_the_ece():
    predictions = random_predictions(1, samples=600)
    found = reliability(predictions.arrays)
    probs = predictions.logits.double().softmax(-1).numpy()
    confidence, hits = probs.max(1), probs.argmax(1) == predictions.labels.numpy()
    expected = []
    for k in range(15):
        inside = (confidence > k / 15) & (confidence <= (k + 1) / 15)
        if inside.any():
            expected.append((inside.sum(), confidence[inside].mean(), hits[inside].mean()))
    np.testing.assert_allclose(
        np.array([found.counts, found.confidence, found.accuracy]).T, expected
    )
    assert found.ece == approx(measure_stored(predictions.logits, predictions.labels)["ece"])


def test_calibrated_predictions_leave_the_band_seldom_and_overconfident_ones_often():
    seldom, often, bins = 0, 0, 0
    for seed in range(12):
        predictions = random_predictions(seed, samples=1000)  # labels are of the logits over 1.5
        calm = reliability(Predictions(predictions.logits / 1.5, predictions.labels).arrays)
        seldom, bins = seldom + calm.outside.sum(), bins + len(calm.outside)
        often += reliability(predictions.arrays).outside.sum()
    assert seldom / bins < 0.08 and often > 4 * seldom


def test_bins_by_hand():
    """Of two classes at confidences 0.6 (a hit), 0.6 (none) and 0.9 (a hit): bins 8
    (8/15 to 9/15] and 13."""
    probs = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9]], dtype=torch.float64)
    found = reliability(Predictions(probs.log(), torch.tensor([0, 1, 1])).arrays)
    columns = (found.numbers, found.counts, found.confidence, found.accuracy, found.low, found.high)
    # No hit of two comes by .4^2 = .16, two by .36; of one sample at .9 both answers
    # come oftener than by 2.5%.
    assert np.stack(columns, axis=1) == approx(
        np.array([[8, 2, 0.6, 0.5, 0, 1], [13, 1, 0.9, 1, 0, 1]])
    )


@pytest.mark.parametrize("samples", [1, 3, 200])
def test_after_temperature_is_after_that_of_the_other_folds(samples):
    given = random_predictions(2, samples=samples)
    found, scaled = diagram(given), cross_fitted(given.logits, given.labels)
    again = reliability(Predictions(scaled, given.labels).arrays)
    for each in ("confidence", "low", "high"):
        np.testing.assert_allclose(getattr(found.scaled, each), getattr(again, each), rtol=1e-9)
    fold = min(samples, 5)
    of_folds = [float(given.logits[k, 0] / scaled[k, 0]) for k in range(fold)]
    assert found.temperature == approx(np.median(of_folds), rel=1e-6)


@pytest.mark.parametrize("groups", [None, torch.arange(300) // 4])
def test_of_given_votes_the_bins_are_those_of_the_metrics_in_torch(groups):
    """Probabilities of 0, and ties, before and after the temperature."""
    votes = np.random.default_rng(4).multinomial(10, np.ones(5) / 5, 300) / 10
    probs = torch.from_numpy(votes)
    given = Predictions(labels=probs.argmax(1), probs=probs, groups=groups)
    scaled = given.cross_fitted()
    found = diagram(given)
    for each, logits, after in (
        (found.raw, given.logits, probs),
        (found.scaled, scaled, given.probs_after(scaled)),
    ):
        confidence, hits = top_label(logits, given.labels, after)
        bins = ReliabilityBins.of(confidence, hits, 15)
        for name in ("counts", "confidence", "accuracy"):
            np.testing.assert_allclose(getattr(each, name), getattr(bins, name), rtol=1e-9)


def test_certain_predictions_leave_no_band():
    logits = torch.tensor([[100.0, 0.0], [100.0, 0.0]])
    found = reliability(Predictions(logits, torch.tensor([0, 1])).arrays)
    assert (found.low, found.high, found.accuracy, found.outside) == (1.0, 1.0, 0.5, True)


# ---- growth --------------------------------------------------------------------------------------


def trial(number, accuracy, ece, ended, samples=100, state="complete"):
    measured = {"accuracy": accuracy, "ece": ece, "nll": 1.0} if state == "complete" else {}
    return TrialRecord("focal", number, state, {}, measured, samples=samples, ended=ended)


def test_growth_is_the_hypervolume_of_what_had_ended():
    generator = np.random.default_rng(0)
    records = [
        trial(k, *generator.random(2), ended=generator.random(), samples=k) for k in range(40)
    ]
    records += [trial(40, 0, 0, 0.5, None, "failed"), trial(41, 1, 1, None, None, "running")]
    ranking = Ranking(unwritten_study(["a"]), trials_of(records))
    found = growth(ranking)
    order = sorted(records[:41], key=lambda record: record.ended)
    for k in range(41):
        front = pareto.front(order[: k + 1], OBJECTIVES)
        assert found.volume[k] == approx(pareto.hypervolume(front, OBJECTIVES, ranking.reference))
        assert found.samples[k] == sum(record.samples or 0 for record in order[: k + 1])
    assert list(found.trials) == list(range(1, 42))


def test_growth_of_one_trial_and_of_none():
    def of(*records):
        return growth(
            Ranking(unwritten_study(["another"]), trials_of(records))
        )  # its defaults are not done

    assert of(trial(0, 0.9, 0.1, 1.0)).volume == approx([0.81])
    assert len(of().trials) == 0
    assert of(trial(0, 0, 0, 1.0, 5, "failed")).volume == approx([0.0])


def test_an_epoch_without_a_value_is_a_gap():
    epochs, values = by_epoch([{"epoch": 1, "entropy_wrong": 0.5}, {"epoch": 2}], "entropy_wrong")
    assert list(epochs) == [1, 2] and values[0] == 0.5 and math.isnan(values[1])


# ---- what was searched ---------------------------------------------------------------------------

SPACE = {
    "method.gamma": FloatDistribution(0, 5),
    "optimizer.lr": FloatDistribution(0.01, 1, log=True),
    "method.schedule": CategoricalDistribution(["a", "b"]),
}


def tried(count, law, space=SPACE):
    generator = np.random.default_rng(0)
    for _ in range(count):
        gamma, lr = generator.uniform(0, 5), float(10 ** generator.uniform(-2, 0))
        params = {"method.gamma": gamma, "optimizer.lr": lr, "method.schedule": "b"}
        params = {path: params[path] for path in space}
        yield create_trial(params=params, distributions=space, values=law(gamma, lr))


def test_importance_goes_to_what_makes_the_difference_and_scale_to_the_range():
    trials = [
        *tried(30, lambda gamma, lr: (gamma, math.log(lr))),
        create_trial(state=TrialState.FAIL),
    ]
    found = searched(trials, OBJECTIVES)
    assert found.importances is not None
    assert (
        found.importances["method.gamma"][0] > 0.85 and found.importances["optimizer.lr"][1] > 0.85
    )
    for place in range(2):
        assert sum(shares[place] for shares in found.importances.values()) == approx(1)
    assert (found.log, found.ranges["method.gamma"]) == ({"optimizer.lr"}, (0, 5))
    assert (
        found.choices == {"method.schedule": ["a", "b"]} and len(found.values["method.gamma"]) == 30
    )


def test_few_trials_one_value_or_no_difference_have_no_importance():
    assert (
        searched(list(tried(LEAST - 1, lambda gamma, lr: (gamma, lr))), OBJECTIVES).importances
        is None
    )
    only = {"method.gamma": SPACE["method.gamma"]}
    assert (
        searched(list(tried(20, lambda gamma, lr: (gamma, lr), only)), OBJECTIVES).importances
        is None
    )
    constant = searched(list(tried(20, lambda gamma, lr: (1.0, lr))), OBJECTIVES).importances
    assert constant is not None and math.isnan(constant["method.gamma"][0])
    assert searched([], OBJECTIVES).values == {}
