"""Whole studies in processes of their own: killed, stopped, and run again."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from study.analysis.states import done, in_words
from study.store.study import open_study
from tests.patience import patient, wait_until
from tests.study.command_line import here, here_json, kill, start, write_spec
from tests.study.counting import counted_once, epochs_trained

pytestmark = [pytest.mark.slow, pytest.mark.platform]


def one_is_well_under_way(trials: Path, attempt: int, epochs: int) -> bool:
    """Whether a trial has trained so many epochs in that attempt, and left a
    checkpoint on the way."""
    found = [path.parent for path in trials.glob(f"*/*/attempt-{attempt}/last.pt")]
    return any((folder / "log").read_text().count("epoch=") >= epochs for folder in found)


def test_killed_while_training_then_run_again(tmp_path: Path) -> None:
    """kill -9 of the driver while trials train, twice; then all is counted once,
    little is trained twice."""
    spec = write_spec(
        tmp_path / "small.yaml",
        model={"name": "mlp", "width": 512, "depth": 2},
        epochs=60,
        trials=1,
        search_space={},
        checkpoint_seconds=0.5,
    )
    directory = tmp_path / "small" / "trials"
    for attempt in (1, 2):
        driver = start("run", spec, "--storage", tmp_path)
        # Well beyond a checkpoint, in epochs: to start anew would repeat more
        # than the promise allows.
        wait_until(lambda attempt=attempt: one_is_well_under_way(directory, attempt, 12))
        kill(driver)
    assert f"2 interrupted. Resume: calstudy run small --storage {tmp_path}\n" in here(
        "status", "small", "--storage", tmp_path
    )
    assert "2 trials planned: 0 complete, 2 interrupted; 0 lost" in here(
        "audit", "small", "--storage", tmp_path
    )
    here("run", spec, "--storage", tmp_path)  # on Ray it went on the second time
    study = counted_once(tmp_path, 2)
    resumed = [
        log for log in study.directory.glob("trials/*/*/*/log") if "resumed from" in log.read_text()
    ]
    assert resumed, "no trial went on from its checkpoint"
    # At most a checkpoint interval (here: or an epoch, if longer) for each of two
    # running trials and two kills.
    history = [
        json.loads((study.files(record) / "history.json").read_text())
        for record in study.records().of("focal")
    ]
    epoch_seconds = min(row["seconds"] for rows in history for row in rows[2:])
    assert epochs_trained(study) - 2 * 60 <= 2 * 2 * (1 + 0.5 / epoch_seconds)


def test_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    """SIGTERM and SIGHUP: test_run_stopped.py."""
    spec = write_spec(
        tmp_path / "small.yaml",
        epochs=60,
        checkpoint_seconds=0.5,
        methods=["cross_entropy"],
        trials=3,
    )
    driver = start("run", spec, "--storage", tmp_path)
    wait_until(lambda: list((tmp_path / "small" / "trials").glob("*/*/attempt-1/log")))
    driver.send_signal(signal.SIGINT)
    shown, _ = driver.communicate(timeout=patient(60))
    assert driver.returncode == 75 and "Traceback" not in shown
    assert "stopped by SIGINT" in shown
    counts = here_json("status", "small", "--storage", tmp_path)["methods"]["cross_entropy"]
    assert counts["running"] == 0
    # Busy for too long to say it.
    if (line := re.search(r"^small: \d+/3 .*\n", shown, re.MULTILINE)) is not None:
        assert line.group() == f"small: {done(counts)}/3 trials; {in_words(counts)}\n"
    shown = here("audit", "small", "--storage", tmp_path)
    assert f"small: clean; 3 trials planned: {in_words(counts)}; 0 lost, 0 duplicated" in shown
    here("run", spec, "--storage", tmp_path)
    counted_once(tmp_path, 3)


def test_a_second_driver_is_refused_and_what_was_never_asked_goes_on(tmp_path: Path) -> None:
    """Killed after the ledger was made and before the first trial: the study
    is still the same one."""
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=1, epochs=1)
    driver = start("run", spec, "--storage", tmp_path)
    wait_until(
        lambda: (
            (tmp_path / "small" / "ledger.log").exists()
            and (tmp_path / "small" / "ledger.log").read_text()
        )
    )
    os.kill(driver.pid, signal.SIGSTOP)  # before its first trial, however long this takes
    refused = here("run", spec, "--storage", tmp_path, check=75)
    assert f"pid {driver.pid}" in refused and "Traceback" not in refused
    kill(driver)
    assert not open_study("small", str(tmp_path)).records().of("cross_entropy")
    here("run", spec, "--storage", tmp_path)
    counted_once(tmp_path, 1)
