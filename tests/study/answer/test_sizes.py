"""Shrinkage between splits of two sizes against a loop over the rows, and what is
said of it and of floors."""

from pathlib import Path

import numpy as np
import pytest
from pytest import approx

from study.answer.confirmation import results_of
from study.answer.sizes import Sizes, sizes_of
from study.schema.objective import Objective
from study.store.study import StudyFolder, open_study
from study.uncertainty.equal_sizes import rows_drawn
from study.uncertainty.forms import floor_text
from study.uncertainty.intervals import Floor
from tests.study.answer.test_answer import changed, confirm
from tests.study.command_line import here, here_json
from tests.study.made import OBJECTIVES, made_study, random_predictions
from trainables import metrics
from trainables.metrics.shared.post_hoc import cross_fitted
from trainables.outputs.predictions import Predictions

NAMES = ("accuracy", "ece", "ts_ece")
TEMPERATURE = 2.0  # of every seed, as `confirm` records it


def confirmed(
    root: Path, validation: int, test: int, objectives: tuple[Objective, ...] = OBJECTIVES
) -> tuple[StudyFolder, Predictions, list[Predictions]]:
    """A confirmed trial of focal, with two seeds and splits of these sizes; its predictions,
    and the seeds' on test."""
    searched, first, other = (random_predictions(0, size) for size in (validation, test, test))
    tests = [first, Predictions(0.7 * other.logits, first.labels)]
    made = made_study(
        root,
        "small",
        {"focal": [(searched.evaluate(), [])]},
        objectives=objectives,
        predictions=lambda *_: searched,
    )
    made = changed(made, sizes={"train": 900, "validation": validation, "test": test})
    fresh = [random_predictions(20 + seed, validation) for seed in range(2)]
    confirm(made, {"focal_0000": fresh}, {"focal_0000": tests})
    return open_study("small", str(root)), searched, tests


def of(study: StudyFolder, resamples: int = 100) -> Sizes:
    found = results_of(study).confirmation
    assert found is not None
    return sizes_of(found, NAMES, NAMES, resamples)


def looped(logits: object, labels: object, rows: np.ndarray) -> float:
    return float(
        np.mean([metrics.measure(logits[row], labels[row], ["ece"])["ece"] for row in rows])
    )  # type: ignore[index]


@pytest.mark.slow
def test_a_larger_test_split_is_drawn_to_the_size_of_validation(tmp_path: Path) -> None:
    """Each seed at the temperature it was given; accuracy has no bias, and is compared as it is."""
    study, searched, tests = confirmed(tmp_path, 287, 360)
    before, found = searched.evaluate(), of(study)
    rows = rows_drawn(360, 287)
    shrinkage = found.shrinkage["focal_0000"]
    accuracy = np.mean([one.evaluate_at(TEMPERATURE)["accuracy"] for one in tests])
    assert shrinkage["accuracy"] == approx(before["accuracy"] - accuracy)
    for name, by in (("ece", 1.0), ("ts_ece", TEMPERATURE)):
        expected = (
            np.mean([looped(one.logits.double() / by, one.labels, rows) for one in tests])
            - before[name]
        )
        assert shrinkage[name] == approx(expected, abs=1e-9)
        plain = np.mean([one.evaluate_at(TEMPERATURE)[name] for one in tests]) - before[name]
        assert abs(shrinkage[name] - plain) > 1e-5
    assert (
        found.compared
        == "shrinkage of ECE compares 287 samples with 287, since fewer samples give larger errors:"
        " of test's 360, 287 are drawn without replacement (mean of 200 draws)."
    )


@pytest.mark.slow
def test_a_larger_validation_split_is_drawn_to_the_size_of_test(tmp_path: Path) -> None:
    """After temperature: at the cross-fitted ones of the whole split."""
    study, searched, tests = confirmed(tmp_path, 360, 200)
    shrinkage, rows = of(study).shrinkage["focal_0000"], rows_drawn(360, 200)
    after = [one.evaluate_at(TEMPERATURE) for one in tests]
    for name, logits in (
        ("ece", searched.logits),
        ("ts_ece", cross_fitted(searched.logits, searched.labels)),
    ):
        expected = np.mean([one[name] for one in after]) - looped(logits, searched.labels, rows)
        assert shrinkage[name] == approx(expected, abs=1e-9)


def test_splits_of_one_size_are_compared_as_they_are(tmp_path: Path) -> None:
    study, searched, tests = confirmed(tmp_path, 300, 300)
    found = of(study, 0)
    expected = np.mean([one.evaluate()["ece"] for one in tests]) - searched.evaluate()["ece"]
    assert found.shrinkage["focal_0000"]["ece"] == approx(expected) and found.compared == ""
    assert found.floors == set() and not found.has_floor("ece")


def test_an_error_that_is_not_resampled_is_said_to_be_of_two_sizes(tmp_path: Path) -> None:
    study, _, _ = confirmed(tmp_path, 60, 90)
    found = results_of(study).confirmation
    assert found is not None
    said = sizes_of(found, (), ("skce",), 0).compared
    assert said.startswith("shrinkage of ") and said.endswith(
        "compares errors of 60 and 90 samples as they are."
    )


def test_what_a_missing_file_would_tell_is_left_out(tmp_path: Path) -> None:
    study, _, _ = confirmed(tmp_path, 287, 360)
    (gone,) = tmp_path.glob("small-confirm/trials/focal_0000/0001/attempt-1/test.npz")
    gone.unlink()
    found = of(study)
    assert found.test == {} and set(found.validation["focal_0000"]) == {"ece", "ts_ece"}
    assert found.shrinkage["focal_0000"].keys() == {"accuracy"}
    assert len(found.problems) == 1 and "test.npz is missing" in found.problems[0]


@pytest.mark.slow
def test_the_answer_and_the_page_have_the_same_floors(tmp_path: Path) -> None:
    study, _, _ = confirmed(tmp_path, 287, 360)
    floor = of(study, 1000).test["focal_0000"]["ece"]
    assert isinstance(floor, Floor)
    said = here_json("answer", "small", "--storage", tmp_path)
    assert said["model"]["test"]["ece"]["floor"] == approx(floor._asdict())
    (sure,) = (part["text"] for part in said["why"] if part["heading"] == "How sure")
    assert f"would measure ECE {floor_text(floor)} on" in sure
    table = here("report", "small", "--format", "csv", "--storage", tmp_path).splitlines()
    columns = next(line for line in table if line.startswith("study,")).split(",")
    row = dict(
        zip(
            columns,
            next(line for line in table if line.startswith("small,")).split(","),
            strict=True,
        )
    )
    assert [float(row[f"ece_floor_{part}"]) for part in Floor._fields] == approx(list(floor))
    here("report", "small", "--storage", tmp_path, "--output", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert (
        f"{floor.mean:.6g}" in page and "of test's 360, 287 are drawn without replacement" in page
    )
