"""The first screen: what it names, where it draws values, and what it leaves out."""

import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from study.analysis.ranking import Ranking
from study.answer.said import Answer, Model, Part
from study.answer.verdict import PLAIN
from study.report.first_screen import first_screen
from study.schema.objective import Objective
from study.uncertainty.intervals import CalibrationInterval, Floor, Interval
from tests.study.made import OBJECTIVES, made_study

TOLD = {
    "focal": [({"accuracy": 0.95, "ece": 0.03}, []), ({"accuracy": 0.94, "ece": 0.02}, [])],
    "cross_entropy": [({"accuracy": 0.92, "ece": 0.04}, []), ({"accuracy": 0.5, "ece": 0.0}, [])],
}
# Estimates at a half and at a quarter of the scale, which is from 0 to .04.
ECE = CalibrationInterval(0.02, 0.0, 0.04, Floor(0.01, 0.01, 0.03))
OTHER = CalibrationInterval(0.01, 0.0, 0.03, Floor(0.01, 0.0, 0.02))
MODEL = Model(
    "focal/0001",
    "focal",
    {"method.gamma": 2.0},
    {"accuracy": 0.94, "ece": 0.02},
    {"accuracy": Interval(0.94, 0.92, 0.96), "ece": ECE},
)
DEFAULT = Model(
    "cross_entropy/0000",
    "cross_entropy",
    {},
    {},
    {"accuracy": Interval(0.9, 0.88, 0.92), "ece": OTHER},
)
NAMES: Any = SimpleNamespace(names={"taken": "focal_0001", "trial": "focal/0001"})
SAID = Answer(
    (
        "Take focal/0001 (gamma 2), as trained.",
        "Accuracy 0.940 [0.920, 0.960], ECE 0.020 [0, 0.040] on 359 sealed test images,"
        " 3 fresh seeds.",
        "Not shown to beat default cross-entropy: undecided in accuracy and ECE.",
        "Two seeds failed: `calstudy trials x`.",
    ),
    (("calstudy export x --name x", "registers it"), ("calstudy report x", "shows all")),
    (Part("How sure", "Values are means."),),
    NAMES,
    MODEL,
    DEFAULT,
    "raw",
    "undecided",
    about="Not shown to beat default cross-entropy: undecided in accuracy and ECE.",
)


def ranked(root: Path, objectives: tuple[Objective, ...] = OBJECTIVES) -> Ranking:
    study = made_study(root, "x", TOLD, objectives=objectives)
    return Ranking(study, study.records())


def screen(said: Answer, ranking: Ranking) -> ET.Element:
    made = first_screen(said, ranking, None, 0.95)
    assert made is not None and "style=" not in made and "<script" not in made
    return ET.fromstring(made)


def of(made: ET.Element, kind: str) -> list[ET.Element]:
    return [one for one in made.iter() if kind in (one.get("class") or "").split()]


def text(node: ET.Element) -> str:
    return "".join(node.itertext())


def test_it_names_the_model_how_sure_and_what_is_next(tmp_path: Path) -> None:
    made = screen(SAID, ranked(tmp_path))
    assert text(of(made, "name")[0]) == "focal/0001"
    assert text(of(made, "how")[0]) == "focal, gamma 2, as trained"
    (sure,) = of(made, "unsure")
    strong, more = sure
    assert text(strong) == "Not shown to beat default cross-entropy."
    default = "Validation ranks it first; the default may be as good."
    told = f"Undecided in accuracy and ECE. {default} Two seeds failed: "
    assert text(more).startswith(told)
    assert [text(code) for code in more.iter("code")] == ["calstudy trials x"]
    heading = "Measured on 359 sealed test images, 3 fresh seeds; 95% intervals"
    assert heading in [text(one) for one in of(made, "label")]
    assert [text(one) for one in made.iter("code")][-1] == "calstudy export x --name x"


def test_values_lie_where_their_scale_says(tmp_path: Path) -> None:
    made = screen(SAID, ranked(tmp_path))
    _, _, taken, default = of(made, "strip")
    for strip, low, at, high, floor in (
        (taken, "0.0%", "50.0%", "100.0%", ("25.0%", "50.0%")),
        (default, "0.0%", "25.0%", "75.0%", ("0.0%", "50.0%")),
    ):
        (reach,) = of(strip, "reach")
        (band,) = of(strip, "floor")
        assert (reach.get("x1"), reach.get("x2")) == (low, high)
        assert (band.get("x"), band.get("width")) == floor
        assert strip.findall("svg")[0].get("x") == at
    assert text(of(made, "scale")[1]) == "0.000.010.020.030.04"


def test_the_front_has_all_trials_once_and_both_models_by_name(tmp_path: Path) -> None:
    made = screen(SAID, ranked(tmp_path))
    (figure,) = of(made, "calm")
    marked = {text(one): one for one in figure.iter("g") if one.get("class")}
    assert {*marked} == {"this model", "default cross-entropy"}
    places = {who: one.findall("svg")[0] for who, one in marked.items()}
    x, y = ({who: float(one.get(axis) or 0) for who, one in places.items()} for axis in "xy")
    assert x["this model"] > x[PLAIN] and y["this model"] > y[PLAIN]  # y grows downward
    (tried,) = of(figure, "tried")
    near = (tried.get("d") or "").split("M")[1:]
    assert len(near) == 3 and "1 trial beyond the axes." in text(figure)
    assert f"M{x[PLAIN]:.1f},{y[PLAIN]:.1f}h0" in (tried.get("d") or "")
    # The staircase goes through the corner that is as bad as either neighbour.
    line = of(figure, "line")[0].get("d") or ""
    assert line.endswith("H{:.1f}V{:.1f}".format(x["this model"], y["this model"]))
    assert line.count("H") == 1


@pytest.mark.parametrize(
    ("said", "there", "gone"),
    [
        (
            replace(SAID, default=None, verdict="is_default"),
            ["this model"],
            ["default cross-entropy</", "unsure"],
        ),
        (replace(SAID, model=replace(MODEL, test={})), ["for now", "best of many"], ["floor:"]),
        (replace(SAID, why=(), next=()), ["this model"], ["Why this one", "registers it"]),
    ],
)
def test_what_has_nothing_to_say_is_not_there(
    said: Answer, there: list[str], gone: list[str], tmp_path: Path
) -> None:
    found = first_screen(said, ranked(tmp_path), None, 0.95) or ""
    assert all(each in found for each in there)
    assert not any(f">{each}" in found or f" {each}" in found for each in gone)


def test_without_a_model_there_is_none_and_with_one_objective_no_front(tmp_path: Path) -> None:
    ranking = ranked(tmp_path, OBJECTIVES[:1])
    assert first_screen(Answer(("No trial is complete yet.",), ()), ranking, None, 0.95) is None
    assert not of(screen(SAID, ranking), "calm")


def test_what_a_study_says_is_text(tmp_path: Path) -> None:
    hostile = replace(MODEL, name="<b>", method="<script>", settings={"a": "<i>"})
    made = screen(replace(SAID, model=hostile), ranked(tmp_path))
    assert text(of(made, "name")[0]) == "<b>" and "<i>" in text(of(made, "how")[0])


def test_a_caution_does_not_stand_in_the_place_of_a_verdict(tmp_path: Path) -> None:
    first, values, _, caution = SAID.sentences
    alone = replace(SAID, sentences=(first, values, caution), about="", verdict="not_compared")
    (sure,) = of(screen(alone, ranked(tmp_path)), "sure")
    assert not [*sure.iter("strong")] and text(sure) == "Two seeds failed: calstudy trials x."


def test_an_interval_without_an_end_reaches_to_the_side(tmp_path: Path) -> None:
    open_ended = {"accuracy": Interval(0.94, 0.92, math.inf), "ece": ECE}
    made = screen(replace(SAID, model=replace(MODEL, test=open_ended)), ranked(tmp_path))
    assert of(of(made, "strip")[0], "reach")[0].get("x2") == "100.0%"
