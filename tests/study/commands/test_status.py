"""What `status`, `trials`, `audit`, the page and the live view say of a study's
trials: all the same."""

import io
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.distributions import FloatDistribution
from rich.console import Console

from study import Study as PublicStudy
from study.analysis.ranking import rules_of
from study.analysis.states import Snapshot, snapshot
from study.audit.audit import audit
from study.report.page_data import gather
from study.store.driver_lock import driver_lock
from study.store.ledger import Ledger, open_storage
from study.store.study import StudyFolder, open_study
from study.store.trials import trial_directory
from study.terminal.progress import Progress
from tests.study.command_line import here, here_json
from tests.study.made import OBJECTIVES, asked, made_study
from trainables.outputs.attempts import attempt_directory

DONE = ({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1, "time": 0.0}])
GUESS = ({"accuracy": 0.1, "ece": 0.0}, [{"epoch": 1, "time": 0.0}])
FAILED: tuple[dict[str, float], list[dict[str, float]]] = ({}, [])


def log(study: Path, number: int, attempt: int, seconds: float) -> None:
    """What an attempt writes first, `seconds` after the driver began."""
    file = attempt_directory(trial_directory(study, "focal", number), attempt) / "log"
    file.parent.mkdir(parents=True)
    file.write_text("process 1 on node\n")
    began = (study / "driver.lock").stat().st_mtime
    os.utime(file, (began + seconds, began + seconds))


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    """Twelve trials of focal are planned; 0 to 3 are done, one of them guesses and one
    failed; 4 to 8 run there.

    4 and 5 train; 6 waits; 7 and 8 were left by an earlier driver, 8 was given out again
    and waits. Of mbls one of
    twelve is done.
    """
    directory = made_study(
        tmp_path,
        "small",
        {"focal": [DONE, DONE, GUESS, FAILED], "mbls": [DONE]},
        planned=12,
        majority=0.1,
    ).directory
    ledger = Ledger(open_storage(directory, None), "small", "small")
    ledger.open("focal", OBJECTIVES)
    for number in range(4, 9):
        assert asked(ledger, "focal").number == number
        assert ledger.begin_attempt("focal", number) == 1
    with driver_lock(directory):
        pass
    log(directory, 4, 1, seconds=1)
    log(directory, 5, 1, seconds=2)
    log(directory, 7, 1, seconds=-60)
    log(directory, 8, 1, seconds=-60)
    assert ledger.begin_attempt("focal", 8) == 2
    study = open_study(str(directory), None)
    return replace(study, recorded=replace(study.recorded, meaning=study.spec.meaning()))


WORKING = dict(
    planned=12, complete=2, excluded=1, pruned=0, failed=1, running=2, interrupted=0, to_do=6
)
STOPPED = dict(
    planned=12, complete=2, excluded=1, pruned=0, failed=1, running=0, interrupted=4, to_do=4
)
OTHER = dict(
    planned=12, complete=1, excluded=0, pruned=0, failed=0, running=0, interrupted=0, to_do=11
)


def all_say(study: StudyFolder, focal: dict[str, int]) -> None:
    """Each that shows the states has these counts of focal, and OTHER of mbls."""
    storage = study.directory.parent
    assert here_json("status", "small", "--storage", storage)["methods"] == {
        label: {**each, "set_aside": each["excluded"]}
        for label, each in (("focal", focal), ("mbls", OTHER))
    }

    total = {state: focal[state] + OTHER[state] for state in focal}
    report = audit(study, f"sqlite:///{storage}/none.db")
    assert report.states == total and (report.planned, report.lost) == (24, 0)
    assert not any(
        check.offenders for check in report.checks if check.name in ("ledger", "running")
    )

    proposed = {
        state: count
        for state, count in focal.items()
        if count and state not in ("planned", "to_do")
    }
    frame = PublicStudy.open(study.directory).trials()
    of_focal = Counter(frame[frame.method == "focal"].state)
    assert of_focal.pop("to_do", 0) == 9 - sum(proposed.values()) and of_focal == proposed

    now = snapshot(study)
    page = gather(study, now.records, alive=now.alive)
    words = {"excluded": "excluded", "pruned": "stopped early", "to_do": "to do"}
    shown = {words.get(state, state): count for state, count in focal.items() if state != "planned"}
    assert (page["methods"][0]["states"], page["methods"][0]["planned"]) == (shown, 12)
    begun = {trial["state"] for trial in page["unfinished"]}
    assert begun == {"failed", *({"running"} if focal["running"] else {"interrupted"})}
    rest = "2 running, 17" if focal["running"] else "4 interrupted, 15"
    assert f"24 planned trials: 3 complete, 1 excluded, 1 failed, {rest}" in page["abstract"][1]


def test_all_say_the_same_while_a_driver_works(study: StudyFolder) -> None:
    with driver_lock(study.directory):
        all_say(study, WORKING)
        records = study.records()
        assert "another calstudy process is running" in here(
            "status", "small", "--storage", study.directory.parent
        )
    progress = Progress(study.spec, records, Console(file=io.StringIO()), rules=rules_of(study))
    with progress:
        for number in (4, 5):
            progress.started(records.of("focal")[number])
        assert progress._counts() == {"focal": WORKING, "mbls": OTHER}
        progress.started(records.of("focal")[6])
        progress.stopped(records.of("focal")[6])  # its process died: it waits again
        assert progress._counts() == {"focal": WORKING, "mbls": OTHER}


def test_all_say_the_same_once_it_was_stopped(study: StudyFolder) -> None:
    """What had begun was interrupted; what had only been proposed is to do, as if it had not
    been."""
    all_say(study, STOPPED)
    storage = study.directory.parent
    # What `run` ends with.
    assert Snapshot.of(study, study.records(), alive=False).counts["focal"] == STOPPED
    shown = here("status", "small", "--storage", storage)
    resume = f"Resume: calstudy run small --storage {storage}\n"
    assert f"the study is not running; 4 interrupted and 15 to do. {resume}" in shown
    assert "missing" not in shown and "lost" not in shown
    assert "3 complete, 1 excluded, 1 failed, 4 interrupted, 15 to do" in repr(
        PublicStudy.open(study.directory)
    )
    listed = [line.split() for line in here("trials", "small", "--storage", storage).splitlines()]
    states = {line[0]: " ".join(line[1:3]) for line in listed}
    assert states["focal/0004"] == "interrupted" and states["focal/0006"] == "to do"


def test_states_no_trial_is_in_have_no_column(study: StudyFolder) -> None:
    with driver_lock(study.directory):
        shown = here("status", "small", "--storage", study.directory.parent).splitlines()
    assert shown[1].split() == [
        "method",
        "planned",
        "complete",
        "excluded",
        "failed",
        "running",
        "to",
        "do",
    ]
    assert shown[2].split() == ["focal", "12", "2", "1", "1", "2", "6"]


def test_status_and_page_say_that_a_method_has_stalled(tmp_path: Path) -> None:
    """After the default one better trial, then ten that add nothing; the twelve
    left are of 1.5 s each."""
    rows = [{"epoch": 1, "time": 0.0}]
    found = [({"accuracy": 0.8, "ece": 0.2}, rows), ({"accuracy": 0.9, "ece": 0.1}, rows)]
    found += [({"accuracy": 0.7, "ece": 0.05}, rows)] * 10
    study = made_study(
        tmp_path, "small", {"focal": found}, {"method.gamma": FloatDistribution(0, 5)}, planned=24
    )
    said = (
        (
            "focal: its last 10 trials added nothing to its hypervolume; the 12 left would cost"
            " under 0.01 CPU-hours."
        ),
        (
            "Nothing stops by itself. To train no more than 12 trials of any method, end the run"
            " and repeat it with `--trials 12`."
        ),
    )
    shown = here("status", "small", "--storage", tmp_path)
    assert shown.splitlines()[-3:-1] == list(said) and "12 to do. Resume" in shown.splitlines()[-1]
    assert gather(study, study.records())["stalled"] == list(said)
    stalled = here_json("status", "small", "--storage", tmp_path)["stalled"]["focal"]
    assert stalled.pop("hours") == pytest.approx(12 * 1.5 / 3600)
    rest = {
        "label": "focal",
        "last": 10,
        "added": 0,
        "begun": 12,
        "planned": 24,
        "left": 12,
        "device": "CPU",
    }
    assert stalled == pytest.approx(rest)
