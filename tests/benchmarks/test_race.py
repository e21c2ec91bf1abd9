"""The even race: what is kept of a network is the network's, and the page is what the files say."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from optuna.distributions import BaseDistribution, FloatDistribution

from benchmarks.race import __main__ as race
from benchmarks.race import choosers
from benchmarks.race.kept import METRICS, UNTUNED, Kept, Scores
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


# ---- the page ------------------------------------------------------------------------------------

RACES = sorted(race.KEPT.glob("*.json"))
SPECS = Path(race.__file__).parents[2] / "study" / "specs" / "race"
CELL = re.compile(r"([+-]\d+) \(([+-]\d+), ([+-]\d+)\) (.+)")
COLUMNS = ("nll", "brier", "ece", "ts_nll", "ts_brier", "ts_ece")


def rows_of(name: str) -> list[list[str]]:
    """The rows of a table of the page, without its heading."""
    table = race.PAGE.read_text().split(f"<!-- {name} -->\n")[1].split("<!-- end -->")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def word_of(low: int, high: int, matters: float) -> set[str]:
    """The words that an interval in whole thousandths allows: docs/why/how-certain.md."""
    found = set()
    for first in (low - 0.5, low + 0.5):
        for last in (high - 0.5, high + 0.5):
            if -matters <= first and last <= matters:
                found.add("as good")
            elif first <= 0 <= last:
                found.add("undecided")
            else:
                found.add("worse" if first > 0 else "better")
    return found


@pytest.mark.parametrize("file", RACES, ids=[file.stem for file in RACES])
def test_the_page_says_what_the_ledger_has_and_words_that_its_intervals_allow(file: Path) -> None:
    facts = json.loads(file.read_text())
    assert facts["sizes"]["test"] >= 7500
    spec = yaml.safe_load((SPECS / f"{file.stem.removeprefix('race_')}.yaml").read_text())
    methods = [one["label"] if isinstance(one, dict) else one for one in spec["methods"]]
    assert set(facts["best"]) == {UNTUNED, *methods}
    assert all(len(row["test"]) == 12 for row in facts["rows"].values())
    rows = rows_of(file.stem.removeprefix("race_"))
    assert [row[0] for row in rows] == list(facts["best"])
    counts: dict[str, Counter[str]] = {metric: Counter() for metric in COLUMNS}
    for label, *cells, _ in rows:
        for metric, cell in zip(COLUMNS, cells, strict=True):
            place = metric.startswith("ts_")
            values = [mean_of(facts, one, metric, place) for one in (label, "cross_entropy")]
            if label == "cross_entropy":
                assert cell == f"{1000 * values[0]:.0f}"
                continue
            read = CELL.fullmatch(cell)
            assert read is not None
            assert float(read[1]) == pytest.approx(1000 * (values[0] - values[1]), abs=0.501)
            matters = 1000 * facts["matters"][metric.removeprefix("ts_")]
            assert read[4] in word_of(int(read[2]), int(read[3]), matters)
            if label != UNTUNED:
                counts[metric][read[4]] += 1
    said = [row[2:] for row in rows_of("summary") if row[0] == file.stem.removeprefix("race_")]
    assert said == [[str(count[word]) for word in race.WORDS] for count in counts.values()]


@pytest.mark.parametrize("file", RACES, ids=[file.stem for file in RACES])
def test_a_regret_is_what_the_ledger_has(file: Path) -> None:
    """Wrong predictions and ECE in hundredths, less those of the best row measured as trained."""
    rows = json.loads(file.read_text())["rows"]
    sums = {
        name: np.mean([100 * (1 - one["accuracy"] + one["ece"]) for one in row["test"]])
        for name, row in rows.items()
        if RAW in row["kept"]
    }
    for *_, taken, regret in rows_of(f"{file.stem.removeprefix('race_')} choosers"):
        said = float(regret.split()[0])
        assert said == pytest.approx(sums[taken] - min(sums.values()), abs=0.0501)


def mean_of(facts: dict[str, Any], label: str, metric: str, place: bool) -> float:
    row = facts["rows"][facts["best"][label][place]]
    return float(np.mean([seed[metric] for seed in row["test"]]))
