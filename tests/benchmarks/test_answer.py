"""benchmarks/answer.py: what a rule takes, what is measured, and regret, on
cases worked out by hand."""

from math import exp, log

import numpy as np
import pytest
import torch
from pytest import approx

from benchmarks import answer
from tests.study.made import made_study


def test_the_splits_of_a_search_are_stratified_and_the_fresh_sample_is_outside(monkeypatch):
    monkeypatch.setattr(answer, "FRESH", 1000)
    labels = np.repeat(np.arange(10), 500)
    one, again, other = (answer.drawn(labels, seed) for seed in (3, 3, 4))
    assert {
        name: np.bincount(labels[rows]).tolist() for name, rows in one.items() if name != "fresh"
    } == {
        "train": [300] * 10,
        "validation": [50] * 10,
        "test": [1] * 10,
    }
    every = np.concatenate(list(one.values()))
    assert len(one["fresh"]) == 1000 and len(np.unique(every)) == len(every)
    assert all(
        (one[name] == again[name]).all() and (one[name] != other[name]).any() for name in one
    )


def test_what_each_rule_takes(tmp_path):
    values = {  # accuracy, ECE, and after the temperature
        "cross_entropy": (0.90, 0.100, 0.01),
        "focal": (0.89, 0.070, 0.05),
        "mbls": (0.88, 0.065, 0.06),
        "brier": (0.60, 0.020, 0.02),
        "label_smoothing": (0.10, 0.000, 0.00),
    }
    names = ("accuracy", "ece", "ts_ece")
    trials = {label: [(dict(zip(names, of, strict=True)), [])] for label, of in values.items()}
    study = made_study(tmp_path, "small", trials)
    takes = [
        (found.record.label, found.served)
        for found in (rule(study) for rule in answer.RULES.values())
    ]
    # Sums of accuracy lost and ECE, each scaled over the front: .575 for brier, 1, .71, .675
    # and 1 for the others. Of those within .02: 1, .64, 1; with the temperature,
    # cross-entropy is better than both others in both. The answer: error + ECE, which is .2,
    # .18 and .185; and .11, .16 and .18.
    assert takes == [
        ("brier", "temperature"),
        ("brier", "raw"),
        ("focal", "raw"),
        ("cross_entropy", "temperature"),
        ("focal", "raw"),
        ("cross_entropy", "temperature"),
    ]


def test_a_model_is_measured_as_trained_and_with_its_temperature():
    found = answer.measured(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), temperature=2.0)
    expected = [[1.0, log(1 + exp(-odds)), 1 - 1 / (1 + exp(-odds))] for odds in (2.0, 1.0)]
    assert np.array(found) == approx(np.array(expected))


def test_regret_is_the_distance_from_the_best_trial_in_either_way():
    values = np.array([[[0.9, 0.5, 0.04], [0.9, 0.4, 0.01]], [[0.8, 0.3, 0.02], [0.8, 0.6, 0.03]]])
    found = answer.Fresh(["a/0000", "b/0000"], values)
    assert found.regret("a/0000", "raw") == approx([0.0, 0.2, 0.03])
    assert found.regret("b/0000", "temperature") == approx([0.1, 0.3, 0.02])


def test_the_difference_of_regrets_is_paired():
    one, other = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    one[:, 1], other[:, 1] = [[0.1], [0.5], [0.9]], [[0.2], [0.6], [1.0]]
    other[:, 0] = 0.25
    # Each search differs by .1, however much searches differ.
    assert answer.cells(other, one)[:2] == ["0.2500 (0.6000)", "+0.1000 (+0.1000 to +0.1000)"]


def test_logits_of_other_trials_are_refused(tmp_path):
    study = made_study(tmp_path, "small", {"focal": [({"accuracy": 0.9, "ece": 0.1}, [])]})
    cache = tmp_path / "fresh.npz"
    np.savez(
        cache,
        names=["mbls/0000"],
        logits=np.zeros((1, 4, 2)),
        temperatures=[1.0],
        labels=np.zeros(4),
    )
    with pytest.raises(AssertionError, match="of other trials"):
        answer.fresh(study, None, cache)
