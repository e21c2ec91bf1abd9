"""The page's drawings are the figures that `calstudy figures` draws, in the page's colours."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from optuna.distributions import CategoricalDistribution, FloatDistribution

from study.report.figure_set import FIGURES, Gallery
from study.report.page_drawings import SECTIONS, Drawing, drawings, inlined
from study.store.study import StudyFolder
from tests.study.made import made_study

SPACE = {
    "method.gamma": FloatDistribution(0.1, 5, log=True),
    "method.schedule": CategoricalDistribution(["flsc_531", "flsc_532"]),
}
LABELS = ["focal", "mbls"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """focal: 9 trials of 12 epochs; mbls: 3, one of which failed."""
    random = np.random.default_rng(0)

    def trial():
        rows = [
            {
                "epoch": 1 + k,
                **{name: random.random() for name in ("accuracy", "nll", "brier", "ece")},
            }
            for k in range(12)
        ]
        return {"accuracy": random.uniform(0.9, 1), "ece": random.uniform(0, 0.1)}, rows

    trials = {"focal": [trial() for _ in range(9)], "mbls": [trial(), ({}, []), trial()]}
    return made_study(tmp_path_factory.mktemp("storage"), "curves", trials, SPACE)


@pytest.fixture(scope="module")
def drawn(study: StudyFolder) -> tuple[list[Drawing], list[str]]:
    return drawings(Gallery(study, study.records()))


def figures_of(study: StudyFolder, name: str) -> list[Figure]:
    return [figure for _, figure in FIGURES[name](Gallery(study, study.records()))]


def elements(drawing: Drawing) -> list[ElementTree.Element]:
    """Of each figure its SVG element."""
    return [ElementTree.fromstring(part) for part in re.findall(r"<svg .*?</svg>", drawing.svg)]


def test_a_drawing_has_the_words_the_lines_and_the_points_of_its_figure(
    study: StudyFolder, drawn: tuple[list[Drawing], list[str]]
) -> None:
    found, notes = drawn
    assert not notes and [drawing.part for drawing in found] == ["growth", "learning", "searched"]
    names = {part: name for name, (part, _) in SECTIONS.items()}
    for drawing in found:
        figures = figures_of(study, names[drawing.part])
        for element, figure in zip(elements(drawing), figures, strict=True):
            figure.draw_without_rendering()
            shown = [each.text for each in element.iter("text")]
            for axes in figure.axes:
                for text in (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()):
                    assert not text or text in shown, text
            assert element.get("aria-label") == " ".join(figure.get_supxlabel().split())
            if drawing.part == "searched":  # their markers, and those of the legend and the ticks
                markers = [each for axes in figure.axes for each in axes.collections]
                uses = len([*element.iter("use")])
                assert uses > sum(len(each.get_offsets()) for each in markers)
            lines = [line for axes in figure.axes for line in axes.lines]
            curves = {to_hex(one.get_color()) for one in lines if one.get_linestyle() != "None"}
            strokes = {each.get("stroke") for each in element.iter("path")}
            assert {"currentColor" if each == "#000000" else each for each in curves} <= strokes


def test_the_page_policy_admits_it_and_no_two_things_have_one_id(
    drawn: tuple[list[Drawing], list[str]],
) -> None:
    found, _ = drawn
    seen: set[str] = set()
    for drawing in found:
        assert "style" not in drawing.svg and "<script" not in drawing.svg
        for element in elements(drawing):
            made = {each.get("id") for each in element.iter() if each.get("id")}
            used = {str(each.get("href"))[1:] for each in element.iter("use")}
            used |= {
                str(each.get("clip-path"))[5:-1] for each in element.iter() if each.get("clip-path")
            }
            assert used == made
            colours = {each.get(which) for each in element.iter() for which in ("fill", "stroke")}
            assert not colours & {"#000000", "#ffffff"} and "currentColor" in colours
            seen |= made
    assert seen


def test_places_have_two_decimals_and_words_keep_theirs() -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1 / 3, 1], "o-")
    axes.set_yticks([0.125], labels=["0.12500"])
    (shown,) = elements(Drawing("growth", "Hypervolume", inlined(figure)))
    places = [str(each.get(key)) for each in shown.iter() for key in "xyd" if each.get(key)]
    assert any(re.search(r"\.\d\d\b", place) for place in places)
    assert not any(re.search(r"\.\d{3}", place) for place in places)
    assert "0.12500" in [each.text for each in shown.iter("text")]


def test_a_name_cannot_end_the_drawing() -> None:
    figure = Figure()
    name = '</svg><script>alert(1)</script> style="x" id="y" & "'
    figure.supxlabel(name)
    (shown,) = elements(Drawing("growth", "Hypervolume", inlined(figure)))
    assert shown.get("aria-label") == " ".join(name.split())
    assert "alert(1)" in str(next(shown.iter("text")).text) and not [*shown.iter("script")]


def test_a_missing_history_is_noted_and_the_rest_drawn(tmp_path):
    row = [{"epoch": 1, "nll": 0.5}]
    study = made_study(
        tmp_path, "torn", {label: [({"accuracy": 0.9, "ece": 0.1}, row)] for label in LABELS}
    )
    records = study.records()
    (study.files(records.of("focal")[0]) / "history.json").unlink()
    found, (note,) = drawings(Gallery(study, records))
    assert "learning" in [drawing.part for drawing in found]
    assert note.startswith("No learning curve: focal/0000: ") and "history.json is missing" in note


def test_without_a_complete_trial_nothing_is_drawn(tmp_path):
    study = made_study(tmp_path, "none", {"focal": [({}, [])]})
    assert drawings(Gallery(study, study.records())) == ([], [])
