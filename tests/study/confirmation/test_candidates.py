"""Which trials of a search are confirmed, and that what is confirmed is not flattered."""

import numpy as np
import torch
from scipy.stats import ks_2samp

from study.confirmation.candidates import best
from study.confirmation.results import Confirmed, moments
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from trainables.metrics.binned import expected_calibration_error


def test_the_best_are_the_front_and_then_the_next() -> None:
    objectives = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
    points = {"a": (0.9, 0.1), "b": (0.8, 0.05), "c": (0.85, 0.2), "d": (0.7, 0.3)}
    records = [
        TrialRecord(name, 0, "complete", {}, {"accuracy": accuracy, "ece": ece})
        for name, (accuracy, ece) in points.items()
    ]
    assert [record.label for record in best(records, objectives, 3)] == ["a", "b", "c"]
    assert [record.label for record in best(records, objectives, 9)] == ["a", "b", "c", "d"]


def test_of_a_front_that_does_not_fit_the_knee_comes_first() -> None:
    objectives = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
    points = {"a": (0.95, 0.2), "b": (0.94, 0.03), "c": (0.5, 0.01)}
    records = [
        TrialRecord(name, 0, "complete", {}, {"accuracy": accuracy, "ece": ece})
        for name, (accuracy, ece) in points.items()
    ]
    assert [record.label for record in best(records, objectives, 2)] == ["b", "a"]
    assert [record.label for record in best(records, objectives, 3)] == ["a", "b", "c"]


def test_confirmed_values_are_like_fresh_draws_and_those_of_winners_are_not() -> None:
    """Simulated studies of 30 trials that are all equally good, and truly calibrated, on 500 samples each.

    What the least ECE of a search promises is none of what such models do; what is confirmed is.
    """
    rng, objectives = np.random.default_rng(0), (Objective("ece", "minimize"),)

    def ece() -> float:
        confidence = rng.uniform(0.5, 1.0, 500)
        labels = torch.from_numpy((rng.uniform(size=500) > confidence).astype(np.int64))
        logits = torch.from_numpy(np.stack([confidence, 1 - confidence], axis=1)).log()
        return float(expected_calibration_error(logits, labels))

    fresh, winners, confirmed = [], [], []
    for _ in range(60):
        records = [TrialRecord("focal", number, "complete", {}, {"ece": ece()}) for number in range(30)]
        (winner,) = best(records, objectives, 1)
        tests = tuple({"ece": ece()} for _ in range(3))
        row = Confirmed("focal_0000", "candidate", winner, (), tests, {})
        assert row.candidate is not None
        winners.append(row.candidate.metrics["ece"])
        confirmed.append(moments(row.tests)["ece"].mean)
        fresh.append(np.mean([ece() for _ in range(3)]))
    assert ks_2samp(confirmed, fresh).pvalue > 0.01
    assert ks_2samp(winners, fresh).pvalue < 1e-12 and np.mean(winners) < 0.8 * np.mean(fresh)
