"""Which trials of a search are confirmed, and that what is confirmed is not flattered."""

from pathlib import Path

import numpy as np
import torch
from scipy.stats import ks_2samp

from study.analysis.ranking import Ranking
from study.answer.confirmation import Confirmed, moments, results_of
from study.engine.candidates import Asked, best_of_each, confirming_spec, lowest
from study.schema.objective import Objective
from study.store.study import open_study
from study.store.trials import TrialRecord
from tests.study.engine.test_confirm import recorded, search
from tests.study.made import trials_of, unwritten_study
from trainables.metrics.binned import expected_calibration_error


def ranked(records: list[TrialRecord], objectives: tuple[Objective, ...]) -> Ranking:
    return Ranking(
        unwritten_study(sorted({record.label for record in records}), objectives),
        trials_of(records),
    )


def test_the_lowest_sums_and_each_setting_once() -> None:
    """Units of .01 in both: 20, 25, 35 and 60. The front leaves out c."""
    objectives = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
    points = {"d": (0.7, 0.3), "b": (0.8, 0.05), "c": (0.85, 0.2), "a": (0.9, 0.1)}
    records = [
        TrialRecord(name, number, "complete", {}, {"accuracy": accuracy, "ece": ece + number})
        for name, (accuracy, ece) in points.items()
        for number in (0, 1)
    ]
    found = lowest(ranked(records, objectives), 3)
    assert [record.name for record in found] == ["a/0000", "b/0000", "c/0000"]
    assert len(lowest(ranked(records, objectives), 9)) == 4


def test_confirmed_values_are_like_fresh_draws_and_those_of_winners_are_not() -> None:
    """Simulated studies of 30 trials that are all equally good, and truly
    calibrated, on 500 samples each.

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
        records = [
            TrialRecord("focal", number, "complete", {}, {"ece": ece()}) for number in range(30)
        ]
        (winner,) = lowest(ranked(records, objectives), 1)
        tests = tuple({"ece": ece()} for _ in range(3))
        row = Confirmed("focal_0000", "candidate", winner, (), tests, {})
        assert row.candidate is not None
        winners.append(row.candidate.metrics["ece"])
        confirmed.append(moments(row.tests)["ece"].mean)
        fresh.append(np.mean([ece() for _ in range(3)]))
    assert ks_2samp(confirmed, fresh).pvalue > 0.01
    assert ks_2samp(winners, fresh).pvalue < 1e-12 and np.mean(winners) < 0.8 * np.mean(fresh)


def test_each_method_has_its_best_as_trained_and_with_its_temperature() -> None:
    """Sums by hand: (1 - accuracy) / .01 + ece / .01 + nll / .02 / 2, and with a temperature the
    same of ts_ece and ts_nll."""
    objectives = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
    values = {  # accuracy, ece, ts_ece; sums as trained and with a temperature
        ("focal", 0): (0.90, 0.020, 0.020),  # 12, 12
        ("focal", 1): (0.92, 0.060, 0.010),  # 14, 9
        ("focal", 2): (0.89, 0.012, 0.030),  # 12.2, 14
        ("mbls", 0): (0.93, 0.010, 0.010),  # 8, 8: the best in both
        ("mbls", 1): (0.92, 0.010, 0.010),
        ("mmce", 0): (0.30, 0.010, 0.010),  # far worse than the best: still its method's best
        ("mmce", 1): (0.20, 0.010, 0.010),
    }
    records = [
        TrialRecord(
            label,
            number,
            "complete",
            {},
            {"accuracy": accuracy, "ece": ece, "ts_ece": after, "nll": 0.5, "ts_nll": 0.5},
        )
        for (label, number), (accuracy, ece, after) in values.items()
    ]
    found = best_of_each(ranked(records, objectives))
    assert [one.name for one in found] == [
        *("focal/0000", "focal/0001"),
        *("mbls/0000", "mbls/0000"),
        *("mmce/0000", "mmce/0000"),
    ]


def test_each_method_is_confirmed_beside_named_trials_and_no_default_joins(tmp_path: Path) -> None:
    told = {
        "focal": [(0.95, 0.02), (0.97, 0.01)],
        "mbls": [(0.9, 0.1), (0.96, 0.03)],
        "label_smoothing": [(0.8, 0.1), (0.7, 0.2)],
    }
    searched = search(tmp_path, told=told)
    asked = Asked(each=True, trials=("focal/0000",), seeds=12)
    spec = confirming_spec(results_of(searched), asked)[0]
    labels = ["focal_0001", "mbls_0001", "label_smoothing_0000_default", "focal_0000_default"]
    assert [variant.label for variant in spec.variants] == [*labels, "cross_entropy_default"]
    assert spec.trials == 12
    directory = tmp_path / "small-confirm"
    recorded(spec, directory)
    # Resumed as it was; candidates chosen in another way bring the defaults.
    assert confirming_spec(results_of(searched), Asked())[0] == spec
    more = confirming_spec(results_of(searched), Asked(trials=("mbls/0000",)))[0]
    added = [variant.label for variant in more.variants][len(spec.variants) :]
    assert added == ["mbls_0000_default"]


def test_a_method_with_a_list_among_its_settings_is_confirmed(tmp_path: Path) -> None:
    """focal_scheduled's steps: a list in the file of a study that began, a tuple in the method."""
    searched = search(tmp_path, told={"focal_scheduled": [(0.95, 0.02), (0.97, 0.01)]})
    study = open_study(searched.name, str(tmp_path))
    spec = confirming_spec(results_of(study), Asked())[0]
    assert next(variant.label for variant in spec.variants).startswith("focal_scheduled_")
    assert study.spec.variant("focal_scheduled").kept == ()
