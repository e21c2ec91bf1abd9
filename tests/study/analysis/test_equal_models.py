"""Trials with equal predictions are one model: on the front, in tables, candidates and answers."""

import csv
from pathlib import Path

import pytest
from pytest import approx

from study.analysis import pareto
from study.analysis.progression import growth
from study.analysis.ranking import Ranking
from study.analysis.rule import decide
from study.analysis.trial_rows import trial_rows
from study.answer.answer import answer
from study.answer.choice import rows_that_count
from study.answer.confirmation import Confirmed, results_of
from study.engine.candidates import lowest
from study.store.files import equal_models
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from tests.study.answer.test_answer import every_part
from tests.study.command_line import here, here_json
from tests.study.made import made_study, random_predictions, trials_of, unwritten_study
from trainables.outputs.predictions import Predictions


def trial(label, number, accuracy, ece, model=None, **params):
    digests = {} if model is None else {"predictions.npz": model}
    values = {"accuracy": accuracy, "ece": ece}
    return TrialRecord(label, number, "complete", params, values, digests=digests)


def ranked(*records):
    labels = list(dict.fromkeys(record.label for record in records))
    return Ranking(unwritten_study(labels), trials_of(records))


def names(records):
    return [record.name for record in records]


# ---- which are one -------------------------------------------------------------------------------


def test_equal_predictions_are_written_as_equal_bytes(tmp_path: Path) -> None:
    one = random_predictions(0)
    digests = [one.save(tmp_path / f"{place}.npz") for place in range(2)]
    assert digests[0] == digests[1]
    moved = one.logits.clone()
    moved[3, 1] += 1e-3
    assert Predictions(moved, one.labels).save(tmp_path / "2.npz") != digests[0]


def test_equal_values_of_other_predictions_are_two_models() -> None:
    ranking = ranked(trial("a", 0, 0.9, 0.1, "x"), trial("b", 0, 0.9, 0.1, "y"))
    assert names(ranking.front) == ["a/0000", "b/0000"] and not ranking.equals


def test_trials_without_a_digest_are_read_and_without_a_file_are_their_own(tmp_path: Path) -> None:
    same = random_predictions(0)
    study = written(tmp_path, [same, same])
    records = [
        TrialRecord(one.label, one.number, one.state, {}, one.metrics, one.attempt)
        for one in study.records()
    ]
    (several,) = equal_models(study, records)
    assert names(several) == ["cross_entropy/0000", "focal/0000"]
    (study.files(records[1]) / "predictions.npz").unlink()
    assert not equal_models(study, records)


def test_who_stands_for_the_others() -> None:
    """The default, wherever it lies; else the first."""
    twin = trial("focal", 3, 0.9, 0.1, "x", gamma=0.0)
    later = trial("focal", 4, 0.9, 0.1, "x", gamma=0.0)
    default = trial("plain", 0, 0.9, 0.1, "x")
    ranking = ranked(trial("focal", 0, 0.8, 0.2, "y", gamma=3.0), twin, later, default)
    assert ranking.equals == {"plain/0000": ("focal/0003", "focal/0004")}
    assert names(ranking.front) == ["plain/0000"]
    assert names(ranking.eligible) == ["focal/0000", "plain/0000"]
    assert len(ranking.counted) == 4  # slim and audit keep the models of both
    assert ranked(twin, later).equals == {"focal/0003": ("focal/0004",)}


def test_all_trials_are_equal() -> None:
    records = [trial("focal", number, 0.9, 0.1, "x", gamma=float(number)) for number in range(5)]
    ranking = ranked(*records)
    assert names(ranking.front) == ["focal/0000"] and ranking.knee is records[0]
    assert names(lowest(ranking, 3)) == ["focal/0000"]
    decision = decide(ranking.study, ranking.eligible)
    assert decision is not None and decision.following is None


# ---- choosing ------------------------------------------------------------------------------------


def test_the_two_to_confirm_are_two_models() -> None:
    records = [
        trial("plain", 0, 0.9, 0.10, "x"),
        trial("focal", 0, 0.9, 0.10, "x", gamma=0.0),
        trial("focal", 1, 0.8, 0.11, "y", gamma=1.0),
    ]
    assert names(lowest(ranked(*records), 2)) == ["plain/0000", "focal/0001"]


def test_nothing_is_selected_over_its_own_settings() -> None:
    """Two seeds of the best settings: what follows is another setting."""
    records = [
        trial("focal", 0, 0.9, 0.10, "x", gamma=1.0),
        trial("focal", 1, 0.9, 0.11, "y", gamma=1.0),
        trial("focal", 2, 0.8, 0.2, "z", gamma=2.0),
    ]
    decision = decide(unwritten_study(["focal"]), records)
    assert decision is not None and (decision.taken, decision.following) == (records[0], records[2])
    decision = decide(unwritten_study(["focal"]), records[:2])
    assert decision is not None and decision.following is None


def test_confirmed_rows_with_equal_networks_are_one() -> None:
    def row(label, models):
        seeds = tuple(trial(label, number, 0.9, 0.1, one) for number, one in enumerate(models))
        return Confirmed(label, "candidate", None, seeds, (), {})

    rows = [row("focal_0003", "xy"), row("plain_default", "xy"), row("focal_0004", "xz")]
    counted, aside = rows_that_count(unwritten_study(["focal"]), rows)
    assert [one.label for one in counted] == ["focal_0003", "focal_0004"] and not aside


# ---- on disk -------------------------------------------------------------------------------------


def written(root: Path, predictions: list[Predictions]) -> StudyFolder:
    """cross_entropy/0000 and focal/0000, ... with these."""
    told = [(one.evaluate(), []) for one in predictions]
    by_trial = {"cross_entropy": told[:1], "focal": told[1:]}

    def of(label: str, number: int) -> Predictions:
        return predictions[number + (label == "focal")]

    return made_study(root, "small", by_trial, predictions=of)


@pytest.fixture
def three(tmp_path: Path) -> StudyFolder:
    """The first two are equal and better than the third."""
    one = random_predictions(0)
    worse = one.logits.clone()
    worse[:40] = worse[:40].roll(1, 1)
    return written(tmp_path, [one, one, Predictions(2 * worse, one.labels)])


def test_one_row_names_both(three: StudyFolder, tmp_path: Path) -> None:
    where = ("--storage", tmp_path)
    shown = here("pareto", "small", *where)
    assert "cross_entropy/0000 = focal/0000" in shown and shown.count("focal/0000") == 1
    (row,) = here_json("pareto", "small", "--bootstrap", 100, "--csv", tmp_path / "f.csv", *where)[
        "front"
    ]
    assert (row["method"], row["equals"]) == ("cross_entropy", ["focal/0000"])
    (line,) = csv.DictReader((tmp_path / "f.csv").open())
    assert (line["method"], line["equals"]) == ("cross_entropy", "focal/0000")
    same = {row["trial"]: (row["front"], row["same_as"]) for row in trial_rows(three)}
    assert same == {
        "cross_entropy/0000": (True, None),
        "focal/0000": (True, "cross_entropy/0000"),
        "focal/0001": (False, None),
    }


@pytest.mark.parametrize("pair", [("focal/0", "cross_entropy/0"), ("focal/1", "focal/1")])
def test_a_model_is_not_compared_with_itself(
    three: StudyFolder, tmp_path: Path, pair: tuple[str, str]
) -> None:
    said = here("pareto", "small", "--compare", *pair, "--storage", tmp_path, check=2)
    assert said.startswith("compare: ") and "are one model: their predictions are equal" in said


def test_the_answer_compares_no_twin(three: StudyFolder) -> None:
    found = answer(results_of(three))
    said = every_part(found)
    assert "cross_entropy/0000" in said and "Next comes focal/0001" in said
    assert "focal/0000" not in said
    assert found.verdict == "is_default" and found.default is None


def test_a_lost_file_leaves_its_twin(three: StudyFolder) -> None:
    """The trial whose predictions are there stands for both, so that nothing is lost."""
    (three.files(three.records()[0]) / "predictions.npz").unlink()
    assert Ranking(three, three.records()).equals == {"focal/0000": ("cross_entropy/0000",)}
    said = answer(results_of(three))
    assert said.choice is not None and said.choice.record.name == "focal/0000"
    assert not said.left_out and said.verdict == "is_default"


def test_the_hypervolume_is_that_of_every_trial_whenever_it_ended(three: StudyFolder) -> None:
    ranking = Ranking(three, three.records())
    every = pareto.front(ranking.counted, three.objectives)
    assert len(every) == 2 and len(ranking.front) == 1
    assert ranking.hypervolume == pareto.hypervolume(every, three.objectives, ranking.reference)
    assert growth(ranking).volume[-1] == approx(ranking.hypervolume)
    assert growth(ranking, "focal").volume[0] == approx(ranking.hypervolume)
