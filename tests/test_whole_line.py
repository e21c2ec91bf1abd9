"""The whole line as its user walks it: run, killed, run again, confirmed, answered, exported,
verified, audited. The two runs are processes of their own, with Ray; what follows is not."""

from pathlib import Path

import pytest

from tests.patience import wait_until
from tests.study.command_line import calstudy, here, here_json, kill, start, write_spec
from tests.study.counting import counted_once

pytestmark = pytest.mark.slow

ONE = ("--cpus", 1)  # a process that trains takes four seconds to import


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage whose study lost its driver by SIGKILL while a trial was training."""
    storage = tmp_path_factory.mktemp("line")
    spec = write_spec(storage / "small.yaml", trials=1, epochs=40, checkpoint_seconds=0.5)
    driver = start("run", spec, "--storage", storage, *ONE)
    trials = storage / "small" / "trials"
    wait_until(lambda: [log for log in trials.glob("*/*/*/log") if "epoch=" in log.read_text()])
    kill(driver)
    return storage


@pytest.fixture(scope="module")
def whole(killed: Path) -> Path:
    """That storage after the same command again."""
    calstudy("run", killed / "small.yaml", "--storage", killed, *ONE)
    return killed


@pytest.fixture(scope="module")
def confirmed(whole: Path) -> Path:
    here("confirm", "small", "--pareto", "--seeds", 2, "--storage", whole)
    return whole


@pytest.fixture(scope="module")
def exported(confirmed: Path) -> Path:
    here("export", "small", "--name", "line", "--alias", "champion", "--storage", confirmed)
    return confirmed


def test_killed_and_run_again_each_trial_is_counted_once(whole: Path) -> None:
    study = counted_once(whole, 2)
    assert {record.state for record in study.records()} == {"complete"}


def test_the_answer_names_a_trial_that_was_confirmed(confirmed: Path) -> None:
    taken = here_json("answer", "small", "--storage", confirmed)["sentences"][0]
    front = here_json("pareto", "small", "--storage", confirmed)["front"]
    assert any(f"{row['method']}/{row['number']:04}" in taken for row in front), taken


def test_the_registered_model_gives_what_was_measured(exported: Path) -> None:
    found = here_json("verify", "models:/line@champion", "--storage", exported)
    assert found["ok"] and found["model"] == "models:/line/1" and found["num_samples"] == 287


def test_the_audit_finds_nothing(exported: Path) -> None:
    shown = here("audit", "small", "--storage", exported)
    assert "small: clean; 2 trials planned: 2 complete; 0 lost, 0 duplicated" in shown
