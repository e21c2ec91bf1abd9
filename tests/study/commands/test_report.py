"""`report --every`: what it writes while trials are missing, when it ends, and what it refuses."""

import json
import re
import time

import pytest
from optuna.distributions import FloatDistribution

from study.cli import main
from study.report import page_data
from study.store.ledger import Ledger, open_storage
from study.tracking import artifacts
from tests.study.made import OBJECTIVES, asked, made_study, random_predictions
from trainables.outputs.outcome import Outcome

SPACE = {"method.gamma": FloatDistribution(0, 5)}
METRICS = {"accuracy": 0.9, "ece": 0.1}


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """`watched`: two methods of two trials; the second has one to do. An upload says what is on
    the page, which is written without its figures."""
    trials = {"focal": [(METRICS, []), (METRICS, [])], "mbls": [(METRICS, [])]}
    made_study(
        tmp_path,
        "watched",
        trials,
        SPACE,
        predictions=lambda label, number: random_predictions(number),
    )
    monkeypatch.setattr(
        artifacts, "try_to_log", lambda study, files, *_: f"uploaded {json.dumps(pages(tmp_path))}"
    )
    monkeypatch.setattr(page_data, "drawings", lambda gallery: ([], []))
    return tmp_path


def finish(root):
    ledger = Ledger(open_storage(root / "watched", None), "watched", "watched")
    ledger.open("mbls", OBJECTIVES)
    number = asked(ledger, "mbls", SPACE).number
    attempt = ledger.begin_attempt("mbls", number)
    outcome = Outcome(state="failed", reason="loss is nan", attempt=attempt)
    ledger.tell("mbls", number, outcome, OBJECTIVES)


def pages(root):
    """Seconds between reloads of the page as it is now, and how many trials it shows as
    incomplete."""
    text = (root / "watched" / "report.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    page = json.loads(data)
    return [page["every"], len(page["studies"][0]["unfinished"])]


def report(capsys, root, *words):
    with pytest.raises(SystemExit) as ended:
        main(["report", "watched", "--storage", str(root), "--bootstrap", "0", *words])
    return ended.value.code, *capsys.readouterr()


@pytest.mark.slow
def test_it_is_rewritten_until_all_trials_have_ended(storage, monkeypatch, capsys):
    seen = []

    def slept(seconds):
        seen.append((seconds, *pages(storage)))
        if len(seen) == 2:
            finish(storage)

    monkeypatch.setattr(time, "sleep", slept)
    code, out, _ = report(capsys, storage, "--every", "7")
    # The pages on disk during each wait reload themselves.
    assert code == 0 and seen == [(7, 7, 0), (7, 7, 0)]
    # The last one does not, and shows the trial that ended since.
    assert pages(storage) == [None, 1]
    lines = [line for line in out.splitlines() if not line.startswith("No ")]
    assert lines[0].endswith("1 trial has yet to end. Rewriting it every 7 s; Ctrl-C stops.")
    # Once, and the last page.
    assert lines[1].startswith("wrote ") and lines[2:] == ["uploaded [null, 1]"]


@pytest.mark.slow
def test_ctrl_c_writes_a_last_page_and_is_no_failure(storage, monkeypatch, capsys):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    code, out, err = report(capsys, storage, "--every", "7")
    assert code == 0 and {*err.splitlines()} <= {"computing the page"}
    assert pages(storage) == [None, 0] and out.count("uploaded") == 1


@pytest.mark.slow
def test_of_an_ended_study_it_writes_one_page(storage, monkeypatch, capsys):
    finish(storage)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("there is nothing to wait for"))
    code, out, _ = report(capsys, storage, "--every", "7")
    assert code == 0 and pages(storage) == [None, 1] and "Ctrl-C" not in out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["--every", "0"],
            "--every: 0 is too short. Write the seconds between two rewrites, at least 1.",
        ),
        (["--every", "-5"], "--every: -5 is too short"),
        (
            ["--every", "60", "--format", "csv"],
            "--every rewrites the HTML page. Leave out --every or --format csv.",
        ),
        (["--every", "often"], "'often' is not a valid integer"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(storage, capsys, words, problem):
    code, out, err = report(capsys, storage, *words)
    assert code == 2 and out == "" and problem in err and err.count("\n") == 1
    assert not (storage / "watched" / "report.html").exists()
