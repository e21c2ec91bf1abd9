"""`calstudy status` while a driver is at work: what it counts as running."""

import os
from pathlib import Path

from study.store.ledger import Ledger, driver_lock, open_storage
from study.store.trials import trial_directory
from tests.study.command_line import here, here_json
from tests.study.made import OBJECTIVES, made_study
from trainables.outputs.attempts import attempt_directory

DONE = ({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1, "time": 0.0}])


def log(study: Path, number: int, attempt: int, seconds: float) -> None:
    """What an attempt writes first, `seconds` after the driver began."""
    file = attempt_directory(trial_directory(study, "focal", number), attempt) / "log"
    file.parent.mkdir(parents=True)
    file.write_text("process 1 on node\n")
    began = (study / "driver.lock").stat().st_mtime
    os.utime(file, (began + seconds, began + seconds))


def test_running_is_what_trains_now(tmp_path: Path) -> None:
    """Of five begun trials: two train; one waits; two were left by an earlier driver, one of them begun again."""
    study = made_study(tmp_path, "small", {"focal": [DONE] * 8, "mbls": [DONE] * 8}).directory
    ledger = Ledger(open_storage(study, None), "small", "small")
    ledger.open("focal", OBJECTIVES)
    for number in range(8, 13):
        assert ledger.ask("focal", {}, "random", 0).number == number
        assert ledger.begin_attempt("focal", number) == 1
    with driver_lock(study):
        log(study, 8, 1, seconds=1)
        log(study, 9, 1, seconds=2)
        log(study, 10, 1, seconds=-60)
        log(study, 11, 1, seconds=-60)
        assert ledger.begin_attempt("focal", 11) == 2
        counts = here_json("status", "small", "--storage", tmp_path)["methods"]
        assert counts["focal"] == dict(planned=13, complete=8, pruned=0, failed=0, running=2, to_do=3)
        assert counts["mbls"] == dict(planned=8, complete=8, pruned=0, failed=0, running=0, to_do=0)
    assert here_json("status", "small", "--storage", tmp_path)["methods"]["focal"]["running"] == 0
    assert "5 of them interrupted" in here("status", "small", "--storage", tmp_path)
