"""A lost predictions.npz: what needs it says so, and nothing else ends or changes."""

import csv
from pathlib import Path

import pytest
from pytest import approx

from study.answer.answer import answer
from study.answer.confirmation import results_of
from study.store.study import StudyFolder, open_study
from study.uncertainty.bootstrap import analyse
from tests.study.answer.test_answer import SELECTED, confirm, explained, predictions, search
from tests.study.command_line import here, here_json


def lose(study: StudyFolder, name: str, file: str = "predictions.npz") -> None:
    (study.files(study.records().named(name, "trial")) / file).unlink()


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    """focal/0000 is best, cross_entropy/0000 (the default) follows, focal/0001 is last."""
    return search(tmp_path)


# ---- the answer ----------------------------------------------------------------------------------


def test_a_better_trial_is_left_out_aloud(study: StudyFolder) -> None:
    """The name of the one it would be, with the values of the ledger: accuracy is 380 of 400."""
    whole = answer(results_of(study))
    lose(study, "focal/0000")
    found = answer(results_of(study))
    assert found.sentences[0].startswith("Take cross_entropy/0000")
    assert found.sentences[0].endswith(", as trained, for now and without focal/0000.")
    cautions = explained(found, "Cautions")
    assert cautions.startswith(
        "This is not the answer of all trials: by its recorded values (accuracy 0.9500 and ECE"
        " 0.0000) focal/0000 would be the choice, but its predictions.npz is missing."
    )
    assert (
        "Restore it from a backup, or retrain with fresh seeds: `calstudy confirm small --trial"
        f" focal/0000 --storage {study.directory.parent}`." in cautions
    )
    assert "Of 2 trials that count and have predictions, it has" in explained(found, SELECTED)
    assert found.to_plain()["left_out"] == {"focal/0000": "predictions.npz is missing"}
    assert whole.to_plain()["left_out"] == {} and "without" not in whole.sentences[0]


def test_a_trial_that_is_not_the_choice_changes_nothing(study: StudyFolder) -> None:
    whole = answer(results_of(study))
    lose(study, "focal/0001")
    assert answer(results_of(study)) == whole


def test_a_default_that_cannot_be_compared_is_said(study: StudyFolder) -> None:
    lose(study, "cross_entropy/0000")
    found = answer(results_of(study))
    assert found.verdict == "not_compared" and found.default is None
    beside = explained(found, "Beside default cross-entropy")
    assert beside.startswith("Not compared with cross_entropy/0000: its predictions.npz is missing")
    assert found.left_out == {"cross_entropy/0000": "predictions.npz is missing"}


def test_where_all_are_lost_none_is_named(study: StudyFolder) -> None:
    for record in study.records().complete:
        lose(study, record.name)
    found = answer(results_of(study))
    assert found.sentences[0] == (
        "No model can be recommended: the predictions of all trials that count are lost."
    )
    assert found.choice is None and len(found.left_out) == 3
    assert [command for command, _ in found.next] == [study.command("confirm")]


def test_export_registers_no_other_unasked(study: StudyFolder, tmp_path: Path) -> None:
    lose(study, "focal/0000")
    words = ("export", "small", "--name", "m", "--storage", tmp_path)
    assert here(*words, check=2) == (
        "pick: focal/0000 is the choice, but its predictions.npz is missing. Restore it from a"
        " backup, or name another: --trial METHOD/NUMBER (`calstudy answer small` says more).\n"
    )


# ---- a confirmation ------------------------------------------------------------------------------


@pytest.fixture
def confirmed(study: StudyFolder) -> StudyFolder:
    """Three seeds each; focal_0000 is better."""
    validation = {
        "focal_0000": [predictions(20 + seed) for seed in range(3)],
        "cross_entropy_default": [predictions(60 + seed) for seed in range(3)],
    }
    confirm(study, validation, validation)
    return study


def test_a_seed_without_a_file_leaves_the_choice_and_narrows_what_is_computed(
    confirmed: StudyFolder,
) -> None:
    whole = answer(results_of(confirmed))
    lose(
        open_study("small-confirm", str(confirmed.directory.parent)), "focal_0000/0002", "test.npz"
    )
    found = answer(results_of(confirmed))
    assert whole.sentences[0].startswith("Take focal/0000")
    assert whole.sentences[0].endswith(", as trained.")
    assert found.sentences[0].endswith(", as trained; files of its confirmation are lost.")
    assert found.next == whole.next
    assert "Accuracy 0.947 [" in whole.sentences[1] and " 3 fresh seeds." in whole.sentences[1]
    assert explained(found, "Cautions").startswith(
        "Left out of all intervals and comparisons here: focal_0000/0002 (test.npz is missing) of"
        " small-confirm. The choice uses the recorded values of all seeds;"
    )
    # Of 20 and 21 wrong of 400: 0.94875; of 22 too, 0.9475.
    assert "Accuracy 0.949 [" in found.sentences[1] and "2 of 3 fresh seeds" in found.sentences[1]
    assert found.left_out == {"focal_0000/0002": "test.npz is missing"}


def test_the_seed_to_export_is_named_if_it_cannot_be(confirmed: StudyFolder) -> None:
    confirming = open_study("small-confirm", str(confirmed.directory.parent))
    chosen = answer(results_of(confirmed)).choice
    assert chosen is not None
    lose(confirming, chosen.record.name)
    found = answer(results_of(confirmed))
    assert found.choice is not None and found.choice.record == chosen.record
    assert not any(command.startswith("calstudy export") for command, _ in found.next)
    assert f"{chosen.record.name}, its seed to export, can only be" in explained(found, "Cautions")


# ---- the front -----------------------------------------------------------------------------------


def test_a_front_keeps_its_trials_and_says_what_has_no_interval(tmp_path: Path) -> None:
    """Three on the front: of more wrong, the better calibrated. Shares: those of the other two."""
    study = search(tmp_path, (predictions(20, 0.9), predictions(60, 0.85)))
    words = ("pareto", "small", "--bootstrap", 100, "--storage", tmp_path)
    whole = here_json(*words)
    assert whole["left_out"] == {}
    names = [(row["method"], row["number"]) for row in whole["front"]]
    assert names == [("focal", 0), ("cross_entropy", 0), ("focal", 1)]
    lose(study, "focal/0001")
    found = here_json(*words)
    assert [(row["method"], row["number"]) for row in found["front"]] == names
    assert found["knee"] == whole["knee"] and found["hypervolume"] == whole["hypervolume"]
    *kept, lost = found["front"]
    assert lost["intervals"] == {} and lost["share_on_front"] is None
    assert found["left_out"] == {
        "focal/0001": {"reason": "predictions.npz is missing", "on_front": True}
    }
    records = [record for record in study.records() if record.name != "focal/0001"]
    shares = analyse(study, records, 100).shares
    assert [row["share_on_front"] for row in kept] == approx(
        [shares["focal/0000"], shares["cross_entropy/0000"]]
    )
    shown = here(*words, "--figure", tmp_path / "f.svg", "--csv", tmp_path / "f.csv")
    assert "focal/0001 is left out of intervals and shares: predictions.npz is missing." in shown
    assert "By recorded values focal/0001 is on the front: the shares of all others are" in shown
    assert "calstudy confirm small --trial focal/0001" in shown
    assert "left out" not in here("pareto", "small", "--storage", tmp_path)
    assert "1 trial is on the front without bars" in (tmp_path / "f.svg").read_text()
    rows = list(csv.DictReader((tmp_path / "f.csv").open()))
    assert [bool(row["ece_low"]) for row in rows] == [True, True, False]


def test_a_front_of_none_ends_with_what_is_wrong(study: StudyFolder, tmp_path: Path) -> None:
    for record in study.records().complete:
        lose(study, record.name)
    said = here("pareto", "small", "--bootstrap", 100, "--storage", tmp_path, check=2)
    assert said.count("\n") == 1 and "predictions.npz is missing. Restore it" in said
    here("pareto", "small", "--storage", tmp_path)


def test_page_and_figures_say_it(study: StudyFolder, tmp_path: Path) -> None:
    lose(study, "focal/0000")
    said = here("report", "small", "--bootstrap", 100, "--storage", tmp_path)
    assert "focal/0000 is left out of intervals and shares: predictions.npz is missing." in said
    page = (tmp_path / "small" / "report.html").read_text()
    assert "This is not the answer of all trials" in page
    drawn = here("figures", "small", "--bootstrap", 100, "--only", "front", "--storage", tmp_path)
    assert "wrote" in drawn and "bars of the front: focal/0000 is left out of intervals" in drawn
