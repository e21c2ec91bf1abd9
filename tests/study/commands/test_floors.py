"""Where commands show an error's interval, they show its floor: in tables, JSON and CSV alike."""

import csv
from pathlib import Path

import pytest
from pytest import approx

from study.store.study import StudyFolder
from study.uncertainty.bootstrap import analyse, measured
from study.uncertainty.forms import floor_text
from study.uncertainty.intervals import Floor, intervals
from study.uncertainty.resampling import Draws
from tests.study.command_line import here, here_json
from tests.study.made import made_study, random_predictions

RESAMPLES = 100


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    trial = (random_predictions(0).evaluate(), [{"epoch": 1, "time": 0.0}])
    return made_study(
        tmp_path, "small", {"focal": [trial]}, predictions=lambda *_: random_predictions(0)
    )


def test_of_a_front(study: StudyFolder, tmp_path: Path) -> None:
    words = ("pareto", "small", "--bootstrap", RESAMPLES, "--storage", tmp_path)
    expected = analyse(study, study.records(), RESAMPLES).intervals["focal/0000"]["ece"].floor
    assert expected is not None
    shown = here(*words, "--csv", tmp_path / "front.csv")
    assert (
        "floor of ece" in shown
        and "floor of accuracy" not in shown
        and f"  {floor_text(expected)}  " in shown
    )
    assert (
        "floor: what a perfectly calibrated model with these confidences would measure on as many"
        " samples" in shown
    )
    assert "floor" not in here("pareto", "small", "--storage", tmp_path)
    found = here_json(*words)["front"][0]["intervals"]
    assert found["ece"]["floor"] == approx(expected._asdict()) and "floor" not in found["accuracy"]
    (row,) = csv.DictReader((tmp_path / "front.csv").open())
    assert [float(row[f"ece_floor_{part}"]) for part in Floor._fields] == approx(list(expected))
    assert "accuracy_floor_mean" not in row and float(row["ts_ece_floor_mean"]) > 0


def test_of_a_file(tmp_path: Path) -> None:
    """The range has the level of the intervals."""
    predictions, file = random_predictions(0), tmp_path / "p.npz"
    predictions.save(file)
    parts = measured(predictions, Draws.of(287, 1000, 0), ["ece", "ts_ece"])
    for level in (95, 90):
        words = ("evaluate", file, "--metrics", "ece,accuracy", "--intervals", "--interval", level)
        floors = [intervals(parts[prefix], level / 100)["ece"].floor for prefix in ("", "ts_")]
        shown = here(*words)
        assert (
            all(floor_text(floor) in shown for floor in floors)
            and f"(mean and {level}% range)" in shown
        )
        found = here_json(*words)["intervals"]
        assert [found[name]["floor"]["high"] for name in ("ece", "ts_ece")] == approx(
            [each.high for each in floors]
        )
