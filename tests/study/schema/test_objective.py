"""Objectives: dominance by hand, and the worst a metric can be, by classifiers that are that
bad."""

import math

import pytest
import torch

from study.analysis.pareto import front
from study.schema.objective import Objective, costs, epoch_note, in_words
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.problems import FieldError

BOTH = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((0.9, 0.1), (0.8, 0.2), True),
        ((0.9, 0.1), (0.9, 0.2), True),
        ((0.9, 0.1), (0.8, 0.1), True),
        ((0.9, 0.1), (0.9, 0.1), False),  # equals do not dominate each other
        ((0.9, 0.2), (0.8, 0.1), False),  # a trade
        ((0.8, 0.1), (0.9, 0.2), False),
        ((0.8, 0.2), (0.9, 0.1), False),
    ],
)
def test_what_dominates_what(first, second, expected):
    one, other = (
        TrialRecord(
            "focal", number, "complete", {}, metrics={"accuracy": values[0], "ece": values[1]}
        )
        for number, values in enumerate((first, second))
    )
    kept = front([one, other], BOTH)
    assert (one in kept and other not in kept) is expected


def test_only_a_chosen_epoch_needs_a_note():
    assert epoch_note("last") == ""
    assert epoch_note("best_ece").startswith(
        "each result is the epoch with the best ece on the validation split"
    )


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("ece", "ECE as trained"),
        ("ts_ece", "ECE after temperature"),
        ("ts_nll", "NLL after temperature"),
        ("accuracy", "accuracy"),
        ("ts_accuracy", "accuracy"),
    ],
)
def test_no_metric_is_taken_for_the_other_of_its_name(metric, words):
    assert in_words(metric) == words


def test_costs_turn_what_is_maximized():
    assert costs((0.9, 0.1), BOTH) == (-0.9, 0.1)
    with pytest.raises(ValueError):
        costs((0.9,), BOTH)


def test_worst_is_reached_by_one_who_is_always_sure_and_always_wrong():
    labels = torch.arange(10) % 5
    logits = torch.nn.functional.one_hot((labels + 1) % 5, 10).double() * 1e3
    measured = metrics.measure_stored(logits, labels)
    for name in ("accuracy", "error", "ece", "mce", "adaptive_ece", "brier"):
        assert metrics.describe(name).worst(10) == pytest.approx(measured[name]), name


def test_worst_nll_is_that_of_one_who_knows_nothing():
    assert metrics.describe("nll").worst(10) == pytest.approx(2.302585092994046)  # log 10
    measured = metrics.measure_stored(torch.zeros(4, 10), torch.arange(4))
    assert metrics.describe("nll").worst(10) == pytest.approx(measured["nll"])


@pytest.mark.parametrize("metric", ["share_above_99", "ts_share_above_99"])
def test_what_is_neither_good_nor_bad_is_no_objective(metric):
    with pytest.raises(FieldError, match=r"has no better direction. Use accuracy_above_99\."):
        Objective(metric, "minimize")


def test_worst_of_every_metric():
    expected = {"accuracy": 0, "top5_accuracy": 0, "accuracy_above_99": 0, "nll": math.log(7)}
    expected |= dict.fromkeys(
        ("brier", "brier_calibration", "brier_refinement", "calibration_brier"), 2
    )
    expected["calibration_nll"] = math.log(7)
    expected |= dict.fromkeys(("skce", "skce_unbiased", "skce_linear"), 2)
    expected |= dict.fromkeys(("miou", "miou_without_0"), 0)
    for name in metrics.names():
        assert metrics.describe(name).worst(7) == expected.get(name.removeprefix("ts_"), 1), name


@pytest.mark.parametrize(
    ("metric", "direction", "path", "said"),
    [
        ("acuracy", "maximize", "metric", "Did you mean 'accuracy'?"),
        ("accuracy", "up", "direction", "maximize, minimize"),
        ("accuracy", "minimize", "direction", "Write maximize"),
        ("ts_ece", "maximize", "direction", "Write minimize"),
        (3, "maximize", "metric", "text"),
    ],
)
def test_refused(metric, direction, path, said):
    with pytest.raises(FieldError) as error:
        Objective(metric, direction)
    assert error.value.path == path
    assert said in error.value.problem
