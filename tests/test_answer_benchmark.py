"""benchmarks/answer.py: who may be taken, what is measured, and regret, on cases worked out by hand."""

from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pytest import approx

from benchmarks import answer
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from trainables.outputs.predictions import Predictions

OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))


def study(samples, classes, **values):
    """Trials by label, each (accuracy, ece) on a balanced validation split."""
    records = [
        TrialRecord(label, 0, "complete", {}, {"accuracy": accuracy, "ece": ece})
        for label, (accuracy, ece) in values.items()
    ]
    predictions = Predictions(torch.zeros(samples, classes), torch.arange(samples) % classes)
    kept = {record.name: predictions for record in records}
    return SimpleNamespace(all_records=lambda: records, objectives=OBJECTIVES, kept=kept)


def test_the_splits_of_a_search_are_stratified_and_the_fresh_sample_is_outside(monkeypatch):
    monkeypatch.setattr(answer, "FRESH", 1000)
    labels = np.repeat(np.arange(10), 500)
    one, again, other = (answer.drawn(labels, seed) for seed in (3, 3, 4))
    assert {name: np.bincount(labels[rows]).tolist() for name, rows in one.items() if name != "fresh"} == {
        "train": [300] * 10,
        "validation": [50] * 10,
        "test": [1] * 10,
    }
    every = np.concatenate(list(one.values()))
    assert len(one["fresh"]) == 1000 and len(np.unique(every)) == len(every)
    assert all((one[name] == again[name]).all() and (one[name] != other[name]).any() for name in one)


def test_a_trial_must_be_significantly_better_than_the_majority_class():
    # Of 20 fair coins, 15 or more are heads with probability .0207, 14 or more with .0577.
    found = answer.better_than_guessing(study(20, 2, fourteen=(0.70, 0.1), fifteen=(0.75, 0.1), never=(0.0, 0.0)))
    assert [record.label for record in found] == ["fifteen"]


def test_a_guesser_sets_the_former_knee_and_not_todays():
    trials = study(
        500, 10, sharp=(0.90, 0.10), good=(0.89, 0.07), even=(0.88, 0.065), weak=(0.60, 0.02), guess=(0.1, 0)
    )
    # Scaled over the whole front, as sums of (accuracy lost, ece): sharp 1, good .7125, even .675, weak .575, guess 1.
    assert answer.former(trials) == (trials.all_records()[3], "temperature")
    # Within .02 of the best: sharp (0, 1), good (.5, .14), even (1, 0).
    assert answer.todays(trials) == (trials.all_records()[1], "raw")


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
    trials = study(20, 2, one=(0.9, 0.1))
    cache = tmp_path / "fresh.npz"
    np.savez(cache, names=["two/0000"], logits=np.zeros((1, 4, 2)), temperatures=[1.0], labels=np.zeros(4))
    with pytest.raises(AssertionError, match="of other trials"):
        answer.fresh(trials, None, cache)
