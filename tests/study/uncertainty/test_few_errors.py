"""`pareto --bootstrap` and `--compare` as commands, on studies made in process: what they print and refuse."""

from pathlib import Path

import pytest

from study.store.study import Study
from tests.study.command_line import here, here_json
from tests.study.made import made_study, random_predictions
from trainables.outputs.predictions import Predictions

pytestmark = pytest.mark.slow

# Trial 1 is trial 0 and twice as sure; trial 2 guesses.
LOGITS = [random_predictions(0).logits, 2 * random_predictions(0).logits, random_predictions(7).logits]
LABELS = random_predictions(0).labels


def predicted(number: int) -> Predictions:
    return Predictions(LOGITS[number], LABELS)


def study_of(root: Path, trials: int = 3) -> Study:
    told = [(predicted(number).evaluate(), []) for number in range(trials)]
    return made_study(root, "small", {"focal": told}, predictions=lambda label, number: predicted(number))


def stored(study: Study, number: int) -> Path:
    (found,) = study.directory.glob(f"trials/focal/{number:04d}/*/predictions.npz")
    return found


def test_the_front_has_intervals_and_shares(tmp_path: Path) -> None:
    file = study_of(tmp_path).directory / "study.yaml"
    words = ("pareto", "small", "--bootstrap", 200, "--storage", tmp_path)
    found = here_json(*words, "--csv", tmp_path / "front.csv")
    names = {row["number"] for row in found["front"]}
    assert found["resamples"] == 200 and 0 in names and 2 not in names
    first = next(row for row in found["front"] if row["number"] == 0)
    assert (
        first["intervals"]["accuracy"]["low"] < first["validation"]["accuracy"] < first["intervals"]["accuracy"]["high"]
    )
    assert 0 < first["share_on_front"] <= 1
    head = (tmp_path / "front.csv").read_text().splitlines()[0].split(",")
    assert {"ece_low", "ece_high", "ts_nll_low", "share_on_front"} <= set(head)
    shown = here(*words)
    assert "95% intervals from 200 resamples" in shown and "not the probability that it truly is" in shown
    file.write_text(file.read_text().replace("result: last", "result: best_ece"))
    note = "each result is the epoch with the best ece on the validation split"
    assert note in here(*words[:2], *words[4:]) and note not in shown


def test_two_trials_side_by_side(tmp_path: Path) -> None:
    study_of(tmp_path)
    words = ("pareto", "small", "--compare", "focal/0000", "focal/1", "--storage", tmp_path)
    found = here_json(*words)
    accuracy, nll = (found["metrics"][name] for name in ("accuracy", "nll"))
    assert (found["one"], found["other"], found["resamples"]) == ("focal/0000", "focal/0001", 1000)
    assert accuracy["low"] == accuracy["high"] == 0 and nll["high"] < 0  # as many are right; it is too sure
    assert "the same 1,000 resamples for both" in here(*words)


@pytest.mark.parametrize("trials", [[], [({}, [])]], ids=["empty", "all failed"])
def test_without_a_complete_trial_it_says_so(tmp_path: Path, trials: list[tuple[dict[str, float], list]]) -> None:
    made_study(tmp_path, "small", {"focal": trials})
    assert here("pareto", "small", "--bootstrap", 200, "--storage", tmp_path) == "no complete trial yet.\n"
    refused = here("pareto", "small", "--compare", "focal/0", "focal/1", "--storage", tmp_path, check=2)
    assert refused.startswith("compare: ") and refused.count("\n") == 1


def test_one_trial_is_its_own_front(tmp_path: Path) -> None:
    study_of(tmp_path, 1)
    (row,) = here_json("pareto", "small", "--bootstrap", 200, "--storage", tmp_path)["front"]
    assert row["share_on_front"] == 1


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda file: file.unlink(), "is missing. Restore it from a backup."),
        (lambda file: Predictions(LOGITS[2], LABELS).save(file), "has changed (its digest differs from the ledger)"),
    ],
    ids=["missing", "altered"],
)
@pytest.mark.parametrize("words", [("--bootstrap", 200), ("--compare", "focal/0000", "focal/0001")], ids=str)
def test_predictions_that_are_not_the_trials_are_refused(tmp_path: Path, harm, said: str, words: tuple) -> None:
    harm(stored(study_of(tmp_path), 1))
    shown = here("pareto", "small", *words, "--storage", tmp_path, check=2)
    assert shown.startswith("focal/0001: ") and said in shown and shown.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--compare", "focal/0000", "focl/0001"), "Did you mean 'focal/0001'?"),
        (("--compare", "focal/0000", "focal/0009"), "there is no trial 'focal/0009'"),
        (("--bootstrap", "10"), "10 is not in the range 100<=x<=10000"),
        (("--bootstrap", "many"), "'many' is not a valid integer"),
    ],
    ids=str,
)
def test_what_is_not_there_is_said(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    study_of(tmp_path)
    shown = here("pareto", "small", *words, "--storage", tmp_path, check=2)
    assert said in shown and shown.count("\n") == 1


@pytest.mark.parametrize("command", ["report", "figures"])
def test_so_few_resamples_have_no_quantiles(tmp_path: Path, command: str) -> None:
    study_of(tmp_path, 1)
    shown = here(command, "small", "--bootstrap", 18, "--storage", tmp_path, check=2)
    assert "18 resamples are too few. Use 0 for none, or at least 100." in shown and shown.count("\n") == 1
