"""The even race: what is kept of a network is the network's, and the page is what the files say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from optuna.distributions import BaseDistribution, FloatDistribution

from benchmarks.race import __main__ as race
from benchmarks.race import choosers
from benchmarks.race.found import cells
from benchmarks.race.kept import METRICS, Kept, Scores
from study.schema.objective import RAW, TEMPERATURE
from study.store.trials import TrialRecord
from study.uncertainty.methods import NetworkPredictions, compare_methods
from tests.study.made import OBJECTIVES
from trainables.outputs.predictions import Predictions

TEMPERATURES = {"one": 1.7, "other": 0.8}
SAMPLES = 3000
SPACE: dict[str, BaseDistribution] = {"optimizer.lr": FloatDistribution(0.01, 1.0, log=True)}


def networks() -> dict[str, list[NetworkPredictions]]:
    """Two methods of three networks, of 10 classes, one of them sharper."""
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.integers(10, size=SAMPLES))
    found = {}
    for name, temperature in TEMPERATURES.items():
        seeds = []
        for _ in range(3):
            logits = rng.normal(size=(SAMPLES, 10)) + 2.5 * np.eye(10)[labels.numpy()]
            sharp = torch.from_numpy(logits * temperature * 2).float()
            seeds.append(NetworkPredictions(Predictions(sharp, labels), temperature))
        found[name] = seeds
    return found


@pytest.mark.parametrize("form", [RAW, TEMPERATURE])
def test_what_is_kept_gives_the_values_and_intervals_of_the_predictions(form: str) -> None:
    given = networks()
    read = {
        (name, form): [Scores.read(*Scores.of(one, form).stored()) for one in of]
        for name, of in given.items()
    }
    known = compare_methods(given, METRICS[form])
    rows = {
        name: {
            "test": [
                {one: known[one].rows[name].values[seed] for one in known} for seed in range(3)
            ]
        }
        for name in given
    }
    found = Kept({"classes": 10, "rows": rows}, read).compared(
        {name: name for name in given}, form, 0.95
    )
    for metric in METRICS[form]:
        assert found[metric].difference("one", "other")[:3] == pytest.approx(
            known[metric].difference("one", "other")[:3], abs=5e-4
        )


def test_the_distance_of_two_settings_is_along_the_range() -> None:
    far = TrialRecord("focal", 0, "complete", {"optimizer.lr": 1.0})
    assert choosers._distance({"optimizer.lr": 0.01}, far, SPACE) == pytest.approx(1.0)
    assert choosers._distance({"optimizer.lr": 0.1}, far, SPACE) == pytest.approx(0.25)


def test_one_search_over_all_methods_takes_each_trial_once() -> None:
    """Of 2 x 12 trials, of which focal's are better."""
    spaces = {label: dict(SPACE) for label in ("focal", "mbls")}
    records = [
        TrialRecord(
            label,
            number,
            "complete",
            {"optimizer.lr": 0.01 * 1.5**number},
            {"accuracy": 0.8 + 0.1 * (label == "focal") + 0.001 * number, "ece": 0.05},
        )
        for number in range(12)
        for label in spaces
    ]
    every = choosers.joint(spaces, OBJECTIVES, records, 24)
    assert sorted(every) == sorted(one.name for one in records)
    first = choosers.joint(spaces, OBJECTIVES, records, 16)
    assert first == every[:16]
    assert sum(name.startswith("focal") for name in first) > 8  # it has learnt which is better


def test_the_page_is_what_is_kept() -> None:
    """Without training: every table of the page, from benchmarks/results/race."""
    page = race.PAGE.read_text()
    races = {
        one.stem.removeprefix("race_"): Kept.read(one) for one in sorted(race.KEPT.glob("*.json"))
    }
    assert races
    found = {name: cells(kept) for name, kept in races.items()}
    tables = {"summary": race.summary(found)}
    for name, kept in races.items():
        assert kept.off < 0.02 and kept.facts["sizes"]["test"] >= 7500
        assert len(kept.methods) == 17 and kept.facts["searched"] > 400
        assert all(len(row["test"]) == 12 for row in kept.facts["rows"].values())
        tables |= {name: race.table(kept, found[name]), f"{name} choosers": race.choices(kept)}
    assert race.filled(page, tables) == page
