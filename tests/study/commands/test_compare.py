"""Two studies beside each other: fronts by brute force, differences by NumPy on the predictions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import approx
from sklearn.metrics import accuracy_score, log_loss

from search_spaces import strict_yaml
from study.analysis.pareto import hypervolume
from study.answer.two_studies import common_objectives, pair_of, why_apart
from study.schema.objective import Objective
from study.store.files import stored_predictions
from study.store.study import StudyFolder, open_study
from tests.study.command_line import here, here_json
from tests.study.made import OBJECTIVES, made_study, random_predictions
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

LINE = "objectives given afterwards; searched and stopped for accuracy, ece"


def predictions(seed: int, scale: float) -> Predictions:
    of_all = random_predictions(0)
    return Predictions(
        scale * (of_all.logits + 0.3 * random_predictions(seed).logits), of_all.labels
    )


def study_of(
    root: Path,
    name: str,
    seed: int,
    objectives: tuple[Objective, ...] = OBJECTIVES,
    count: int = 1,
) -> StudyFolder:
    found = [predictions(seed + number, 0.5 + 0.2 * number) for number in range(count)]
    trials = {"cross_entropy": [(one.evaluate(), []) for one in found]}
    return made_study(
        root,
        name,
        trials,
        objectives=objectives,
        predictions=lambda label, number: found[number],
        planned=4,
    )


def rewritten(study: StudyFolder, **recorded: object) -> StudyFolder:
    """With other recorded facts."""
    plain = {**study.plain, "recorded": replace(study.recorded, **recorded).to_plain()}  # type: ignore[arg-type]
    (study.directory / "study.yaml").write_text(strict_yaml.dump(plain))
    return open_study(str(study.directory), None)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyFolder, StudyFolder]:
    root = tmp_path_factory.mktemp("two")
    return study_of(root, "one", 1, count=4), study_of(root, "other", 101, count=4)


@pytest.fixture(scope="module")
def compared(two: tuple[StudyFolder, StudyFolder]) -> Any:
    """What the command prints of them to programs."""
    return here_json("compare", "one", "other", "--storage", two[0].directory.parent)


def points_of(study: StudyFolder) -> dict[tuple[str, str], tuple[float, float]]:
    return {
        (study.name, record.name): (-record.metrics["accuracy"], record.metrics["ece"])
        for record in study.records()
    }


def dominant(points: dict[tuple[str, str], tuple[float, float]]) -> set[tuple[str, str]]:
    return {
        name
        for name, point in points.items()
        if not any(
            np.all(np.less_equal(other, point)) and other != point for other in points.values()
        )
    }


def test_the_fronts_are_those_of_brute_force(
    two: tuple[StudyFolder, StudyFolder], compared: Any
) -> None:
    found = compared
    points = [points_of(study) for study in two]
    shown = {
        (side["name"], row["trial"]): row["on_front_of_both"]
        for side in found["studies"]
        for row in side["front"]
    }
    assert set(shown) == dominant(points[0]) | dominant(points[1])
    assert {name for name, both in shown.items() if both} == dominant({**points[0], **points[1]})
    assert found["same_validation"] and "differs" not in found and found["spec"] == {}


def test_the_two_models_differ_by_what_their_predictions_do(
    two: tuple[StudyFolder, StudyFolder], compared: Any
) -> None:
    found = compared
    values = []
    for study, side in zip(two, found["studies"], strict=True):
        of = stored_predictions(study, study.records().named(side["trial"], "trial"))
        probs = of.logits.double().softmax(-1).numpy()
        nll = log_loss(of.labels, probs)
        values.append((accuracy_score(of.labels, probs.argmax(1)), nll))
        assert side["split"] == "validation"
        assert side["values"]["accuracy"] == approx(values[-1][0])
    difference = found["difference"]
    assert difference["accuracy"]["estimate"] == approx(values[0][0] - values[1][0], abs=1e-9)
    assert difference["nll"]["estimate"] == approx(values[0][1] - values[1][1], rel=1e-5)
    assert difference["nll"]["low"] < difference["nll"]["estimate"] < difference["nll"]["high"]


def test_the_reference_is_the_worse_of_the_two(two: tuple[StudyFolder, StudyFolder]) -> None:
    pair = pair_of(*two, None, 0.95)
    firsts = [study.records()[0].metrics for study in two]  # the defaults
    worst = {"accuracy": min(f["accuracy"] for f in firsts), "ece": max(f["ece"] for f in firsts)}
    assert pair.reference_values() == approx(worst)
    for side in pair.sides:
        corner = (-worst["accuracy"], worst["ece"])
        assert pair.hypervolume(side) == hypervolume(side.front, OBJECTIVES, corner)


def test_what_is_printed(two: tuple[StudyFolder, StudyFolder]) -> None:
    root = two[0].directory.parent
    shown = here("compare", "one", "other", "--storage", root)
    lines = shown.splitlines()
    assert lines[0].startswith("one: ") and "Take cross_entropy/" in lines[0]
    assert any(line.startswith("other: ") for line in lines)
    assert "Their specs are the same but for the name." in lines and "afterwards" not in shown
    assert sum(line.split()[0] in ("one", "other") for line in lines if line.strip()) > 3
    given = here("compare", "one", "other", "--objectives", "nll", "--storage", root)
    assert given.startswith(f"{LINE}\none: ")


# ---- what cannot be compared ---------------------------------------------------------------------


def test_a_figure_of_both_is_refused() -> None:
    assert here("compare", "one", "other", "--figure", "both.png", check=2) == (
        "calstudy: --figure was removed. Both fronts are printed; --json has their"
        " values. Try: calstudy compare --help\n"
    )


def test_other_data_are_said_and_nothing_is_put_on_one_axis(tmp_path: Path) -> None:
    one = study_of(tmp_path, "one", 1)
    other = rewritten(study_of(tmp_path, "other", 1), data_digest="another")
    shown = here("compare", "one", "other", "--storage", tmp_path)
    why = "the validation data differ (data digests d1635 and another)"
    assert why in shown and "fronts (validation)" not in shown and "Take" in shown
    found = here_json("compare", "one", "other", "--storage", tmp_path)
    assert not found["same_validation"] and "front" not in found["studies"][0]
    named = why_apart(one, other, {"seed": ("0", "1"), "data.augment": ("a", "b")}, ["one", "b"])
    assert named == "seed 0 in one, 1 in b"


def test_other_classes_are_said(tmp_path: Path) -> None:
    one = study_of(tmp_path, "one", 1)
    fewer = replace(one, recorded=replace(one.recorded, classes=["a", "b"]))
    assert why_apart(one, fewer, {}, ["one", "b"]) == "one has 10 classes, b 2"


def test_other_labels_are_found_though_the_record_says_the_same(tmp_path: Path) -> None:
    study_of(tmp_path, "one", 1)
    of_others = random_predictions(7)
    trials = {"cross_entropy": [(of_others.evaluate(), [])]}
    made_study(tmp_path, "other", trials, predictions=lambda label, number: of_others)
    shown = here("compare", "one", "other", "--storage", tmp_path)
    assert "the validation data differ (the labels stored with their predictions)" in shown


@pytest.mark.slow
def test_the_common_objectives(tmp_path: Path, two: tuple[StudyFolder, StudyFolder]) -> None:
    both = (Objective("ece", "minimize"), Objective("nll", "minimize"))
    other = study_of(tmp_path, "b", 1, both)
    assert [one.metric for one in common_objectives(two[0], other)] == ["ece"]
    pair = pair_of(two[0], other, None, 0.95)
    assert pair.afterwards == [
        f"one: {LINE}",
        "b: objectives given afterwards; searched and stopped for ece, nll",
    ]
    assert list(pair.differences) == ["objectives"]
    swapped = study_of(tmp_path, "c", 1, OBJECTIVES[::-1])
    assert pair_of(two[0], swapped, None, 0.95).afterwards == []
    alone = study_of(tmp_path, "d", 1, (Objective("brier", "minimize"),))
    with pytest.raises(FieldError, match="no objective in common \\(accuracy, ece; brier\\)"):
        common_objectives(two[0], alone)


def test_what_is_no_pair_is_refused_in_a_line(tmp_path: Path) -> None:
    study_of(tmp_path, "one", 1)
    made_study(tmp_path, "empty", {"cross_entropy": []})
    for names, said in (
        (("one", "one"), "compare: one is given twice. Name two studies."),
        (("one", "empty"), "empty: has no complete trial that counts. Run `calstudy run empty"),
        (("one", "none"), "none: no study at "),
    ):
        shown = here("compare", *names, "--storage", tmp_path, check=2)
        assert shown.startswith(said) and shown.count("\n") == 1
