"""`pareto --bootstrap` and `--compare` as commands, on studies made in process: what
they print and refuse."""

from pathlib import Path

import pytest
import torch
from pytest import approx
from scipy.stats import binomtest

from study.store.study import StudyFolder
from tests.study.command_line import here, here_json
from tests.study.made import made_study, random_predictions
from trainables.outputs.predictions import Predictions

pytestmark = pytest.mark.slow

# Trial 1 is trial 0 and twice as sure; trial 2 guesses.
LOGITS = [
    random_predictions(0).logits,
    2 * random_predictions(0).logits,
    random_predictions(7).logits,
]
LABELS = random_predictions(0).labels


def predicted(number: int) -> Predictions:
    return Predictions(LOGITS[number], LABELS)


def study_of(root: Path, trials: int = 3) -> StudyFolder:
    told = [(predicted(number).evaluate(), []) for number in range(trials)]
    return made_study(
        root, "small", {"focal": told}, predictions=lambda label, number: predicted(number)
    )


def stored(study: StudyFolder, number: int) -> Path:
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
        first["intervals"]["accuracy"]["low"]
        < first["validation"]["accuracy"]
        < first["intervals"]["accuracy"]["high"]
    )
    assert 0 < first["share_on_front"] <= 1
    head = (tmp_path / "front.csv").read_text().splitlines()[0].split(",")
    assert {"ece_low", "ece_high", "ts_nll_low", "share_on_front"} <= set(head)
    shown = here(*words)
    assert (
        "95% intervals from 200 resamples" in shown
        and "not the probability that it truly is" in shown
    )
    file.write_text(file.read_text().replace("result: last", "result: best_ece"))
    note = "each result is the epoch with the best ece on the validation split"
    assert note in here(*words[:2], *words[4:]) and note not in shown


def test_two_trials_side_by_side(tmp_path: Path) -> None:
    study_of(tmp_path)
    words = ("pareto", "small", "--compare", "focal/0000", "focal/1", "--storage", tmp_path)
    found = here_json(*words)
    accuracy, nll = (found["metrics"][name] for name in ("accuracy", "nll"))
    assert (found["one"], found["other"], found["resamples"]) == ("focal/0000", "focal/0001", 1000)
    # The same are right: as far as Wilson's limit of a share of 0. It is too sure.
    most = binomtest(0, len(LABELS)).proportion_ci(0.95, "wilson").high
    assert (accuracy["low"], accuracy["high"]) == approx((-most, most)) and nll["high"] < 0
    assert "the same 1,000 resamples for both" in here(*words)


def test_the_level_is_the_users(tmp_path: Path) -> None:
    """Accuracy against SciPy's Wilson interval; each output names its level."""
    study_of(tmp_path)
    words = ("pareto", "small", "--bootstrap", 200, "--storage", tmp_path)
    right = round(len(LABELS) * predicted(0).evaluate()["accuracy"])
    for more, level in (((), 0.95), (("--interval", 90), 0.90), (("--interval", 68.27), 0.6827)):
        found = here_json(*words, *more, "--csv", tmp_path / "front.csv")
        ends = next(row for row in found["front"] if row["number"] == 0)["intervals"]["accuracy"]
        expected = binomtest(right, len(LABELS)).proportion_ci(level, "wilson")
        assert (ends["low"], ends["high"]) == approx(tuple(expected), abs=1e-9) and found[
            "level"
        ] == level
        header, row, *_ = (
            line.split(",") for line in (tmp_path / "front.csv").read_text().splitlines()
        )
        assert float(row[header.index("interval_level")]) == level
    shown = here(*words, "--interval", 90, "--figure", tmp_path / "front.svg")
    assert (
        "90% intervals from 200 resamples" in shown
        and "start at 0 where the model may be" in " ".join(shown.split())
        and "95%" not in shown
    )


def test_two_trials_at_another_level(tmp_path: Path) -> None:
    study_of(tmp_path)
    words = ("pareto", "small", "--compare", "focal/0", "focal/1", "--bootstrap", 200)
    words = (*words, "--storage", tmp_path)
    usual, narrow = here_json(*words), here_json(*words, "--interval", 80)
    assert (usual["level"], narrow["level"]) == (0.95, 0.8)
    for name in ("nll", "ece"):
        assert (
            usual["metrics"][name]["low"]
            < narrow["metrics"][name]["low"]
            <= narrow["metrics"][name]["estimate"]
        )
    shown = here(*words, "--interval", 80)
    assert "80% interval" in shown and "for 20% of metrics" in shown and "95%" not in shown
    assert "of these two trained networks, one seed each, not of their methods" in shown


@pytest.mark.parametrize(
    ("words", "file", "said"),
    [
        (("report",), "report.html", '"whiskers":"90% intervals"'),
        (
            ("figures", "--only", "front", "--format", "svg"),
            "figures/front.svg",
            "bars: 90% intervals",
        ),
    ],
    ids=["page", "figure"],
)
def test_page_and_figure_name_their_level(
    tmp_path: Path, words: tuple[str, ...], file: str, said: str
) -> None:
    directory, more = study_of(tmp_path).directory, ("--bootstrap", 100, "--storage", tmp_path)
    here(words[0], "small", *words[1:], "--interval", 90, *more)
    assert said in (directory / file).read_text()


@pytest.mark.parametrize("trials", [[], [({}, [])]], ids=["empty", "all failed"])
def test_without_a_complete_trial_it_says_so(
    tmp_path: Path, trials: list[tuple[dict[str, float], list]]
) -> None:
    made_study(tmp_path, "small", {"focal": trials})
    assert (
        here("pareto", "small", "--bootstrap", 200, "--storage", tmp_path)
        == "no complete trial yet.\n"
    )
    refused = here(
        "pareto", "small", "--compare", "focal/0", "focal/1", "--storage", tmp_path, check=2
    )
    assert refused.startswith("compare: ") and refused.count("\n") == 1


def test_one_trial_is_its_own_front(tmp_path: Path) -> None:
    study_of(tmp_path, 1)
    (row,) = here_json("pareto", "small", "--bootstrap", 200, "--storage", tmp_path)["front"]
    assert row["share_on_front"] == 1


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda file: file.unlink(), "is missing. Restore it from a backup."),
        (
            lambda file: Predictions(LOGITS[2], LABELS).save(file),
            "has changed (its digest differs from the ledger)",
        ),
    ],
    ids=["missing", "altered"],
)
def test_predictions_that_are_not_the_trials_are_never_resampled(
    tmp_path: Path, harm, said: str
) -> None:
    harm(stored(study_of(tmp_path), 1))
    words = ("pareto", "small", "--storage", tmp_path)
    shown = here(*words, "--compare", "focal/0000", "focal/0001", check=2)
    assert shown.startswith("focal/0001: ") and said in shown and shown.count("\n") == 1
    left_out = "focal/0001 is left out of intervals and shares: predictions.npz "
    assert left_out + said.partition(". ")[0] in here(*words, "--bootstrap", 200)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--compare", "focal/0000", "focl/0001"), "Did you mean 'focal/0001'?"),
        (("--compare", "focal/0000", "focal/0009"), "there is no trial 'focal/0009'"),
        (("--bootstrap", "10"), "10 is not in the range 100<=x<=10000"),
        (("--bootstrap", "many"), "'many' is not a valid integer"),
        (
            ("--bootstrap", 200, "--interval", 0.9),
            "0.9 is not between 50 and 100 (both excluded). Write a percentage",
        ),
        (("--bootstrap", 200, "--interval", 100), "100 is not between 50 and 100"),
        (("--bootstrap", 200, "--interval", 50), "50 is not between 50 and 100"),
        (("--bootstrap", 200, "--interval", "nan"), "nan is not between 50 and 100"),
        (("--bootstrap", 200, "--interval", "90%"), "'90%' is not a valid float"),
        (("--interval", 90), "--interval is for --bootstrap N or --compare A B"),
        (
            ("--bootstrap", 499, "--interval", 99),
            "499 resamples are too few for 99% intervals. Use --bootstrap 500.",
        ),
        (
            ("--compare", "focal/0", "focal/1", "--interval", 99.9),
            "1,000 resamples are too few for 99.9% intervals",
        ),
        (("--bootstrap", 200, "--interval", 99.99), "Use a lower --interval"),
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
    assert (
        "18 resamples are too few. Use 0 for none, or at least 100." in shown
        and shown.count("\n") == 1
    )


def test_a_difference_of_metrics_of_at_most_one_lies_within_one(tmp_path: Path) -> None:
    """One wrong prediction alone in its bin: in a third of the resamples it is missing,
    and the MCE is near 0."""
    labels = torch.arange(60) % 10
    # Six wrong of sixty, at .9.
    told = torch.where(torch.arange(60) % 10 == 3, (labels + 1) % 10, labels)
    sure = torch.full((60,), 0.9)
    lonely = sure.clone()
    lonely[3] = 0.7

    def made(label: str, number: int) -> Predictions:
        confidence = (lonely, sure)[number]
        hot = torch.nn.functional.one_hot(told, 10)
        probs = torch.where(hot == 1, confidence[:, None], (1 - confidence[:, None]) / 9)
        return Predictions(probs.log(), labels)

    trials = [(made("focal", number).evaluate(), []) for number in range(2)]
    made_study(tmp_path, "small", {"focal": trials}, predictions=made)
    found = here_json("pareto", "small", "--compare", "focal/0", "focal/1", "--storage", tmp_path)[
        "metrics"
    ]["mce"]
    assert found["estimate"] == approx(0.7) and found["high"] == 1.0


def test_a_tables_words_are_at_the_users_level(tmp_path: Path) -> None:
    study_of(tmp_path)
    options = ("--bootstrap", 100, "--interval", 90)
    shown = here("report", "small", "--format", "md", *options, "--storage", tmp_path)
    words = "the 90% interval of the difference lies within the smallest difference that matters"
    assert words in " ".join(shown.split())
