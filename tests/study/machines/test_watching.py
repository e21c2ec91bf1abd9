"""A lost Ray is said, waited for, and then ends the run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from study.engine import run
from study.machines import watching
from study.machines.stopping import Stopping
from study.machines.watching import Watching
from study.schema.wait import NO_WAIT
from tests.gate import write_extensions
from tests.patience import patient
from tests.shared import with_empty_mlflow
from tests.study.command_line import ENVIRONMENT, write_spec

SHORT = {"LOOK_SECONDS": 0.01, "ASK_SECONDS": 0.01, "SILENCE": 0.2, "PATIENCE": 1.0}


class Head:
    """A control store that answers, or not; and what of Ray has ended."""

    def __init__(self) -> None:
        self.answers = True
        self.dead: list[str] = []
        self.asked = 0

    def ask(self, seconds: float) -> None:
        self.asked += 1
        if not self.answers:
            raise TimeoutError


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    for name, seconds in SHORT.items():
        monkeypatch.setattr(watching, name, seconds)
    return Head()


@pytest.fixture
def shown() -> list[str | None]:
    return []


@pytest.fixture
def stopping(head: Head, shown: list[str | None]) -> Iterator[Stopping]:
    stopping = Stopping()
    watch = Watching(" at 10.0.0.1:6379", head.ask, lambda: head.dead, shown.append, stopping)
    watch.start()
    yield stopping
    watch.end()


def until(true: Callable[[], object], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + patient(seconds)
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(true())


def test_a_head_that_answers_is_not_mentioned(
    head: Head, stopping: Stopping, shown: list[str | None]
) -> None:
    assert until(lambda: head.asked > 20)
    assert shown == [] and stopping.caught is None


def test_a_head_that_answers_again_goes_on(
    head: Head, stopping: Stopping, shown: list[str | None]
) -> None:
    head.answers = False
    assert until(lambda: shown)
    head.answers = True
    assert until(lambda: shown[-1] is None)
    assert stopping.caught is None
    assert str(shown[0]) == "Ray: its head at 10.0.0.1:6379 does not answer; waiting (0 s)"


def test_a_head_that_is_silent_for_too_long_ends_the_run(head: Head, stopping: Stopping) -> None:
    head.answers = False
    assert until(stopping.requested)
    assert stopping.caught == "the loss of Ray's head at 10.0.0.1:6379"


def test_what_has_ended_ends_the_run_at_once(
    head: Head, stopping: Stopping, shown: list[str | None]
) -> None:
    head.dead = ["raylet"]
    assert until(stopping.requested)
    assert stopping.caught == "the loss of Ray's raylet" and shown == []


def test_seconds_in_which_this_process_stood_still_do_not_count(
    head: Head, stopping: Stopping, shown: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop that slept, or SIGSTOP: the head had no time to answer."""
    monkeypatch.setattr(watching, "PATIENCE", 30.0)
    head.answers = False
    assert until(lambda: shown)
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 3600)
    before, said = head.asked, len(shown)
    assert until(lambda: head.asked > before + 5 and len(shown) > said + 5)
    assert stopping.caught is None


def test_we_are_more_patient_than_a_minute_and_sooner_than_ray() -> None:
    from study.machines.ray_session import _ENVIRONMENT

    assert 60 < watching.PATIENCE < int(_ENVIRONMENT["RAY_gcs_rpc_server_reconnect_timeout_s"]) - 20
    assert watching.SILENCE + 2 * watching.ASK_SECONDS < 20


@pytest.mark.slow
@pytest.mark.parametrize("program", ["gcs_server", "raylet"])
@pytest.mark.platform
def test_a_run_whose_ray_is_killed_ends_with_75_and_is_resumed(
    program: str, tmp_path: Path
) -> None:
    write_extensions(tmp_path / "own", tmp_path / "gate", seconds=0.02)  # sixteen times an epoch
    keys = {"methods": ["patient"], "extensions": "own", "trials": 2, "epochs": 1000}
    write_spec(tmp_path / "small.yaml", **keys)
    mark = f"CALSTUDY_TEST={tmp_path}"
    run = _started(tmp_path, "-m", "study.cli")
    log = tmp_path / "studies" / "small" / "trials" / "patient" / "0000" / "attempt-1" / "log"
    try:
        assert until(lambda: log.exists() and "epoch=3 " in log.read_text(), 120), (
            tmp_path / "out"
        ).read_text()
        for pid in _pids(mark, program):
            os.kill(pid, signal.SIGKILL)
        assert run.wait(patient(120)) == 75
    finally:
        run.kill()
    lost = {"gcs_server": "control store", "raylet": "raylet"}[program]
    _check_said(tmp_path, lost)
    assert not _pids(mark, program)


LOSES_ITS_STORE = """
import os, signal
from ray._private import worker
from study.cli import main
from study.engine import run

nodes = run.FitNodes

def lost(*taken):
    (store,) = worker._global_node.all_processes["gcs_server"]
    os.kill(store.process.pid, signal.SIGKILL)
    return nodes(*taken)

run.FitNodes = lost
main()
"""


@pytest.mark.slow
@pytest.mark.platform
def test_a_run_whose_ray_is_killed_before_a_trial_trains_ends_with_75(tmp_path: Path) -> None:
    write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=2, epochs=1)
    run = _started(tmp_path, "-c", LOSES_ITS_STORE)
    try:
        assert run.wait(patient(120)) == 75
    finally:
        run.kill()
    _check_said(tmp_path, "control store")


def _started(folder: Path, *program: str) -> subprocess.Popen[bytes]:
    storage = folder / "studies"
    with_empty_mlflow(("run", folder / "small.yaml", "--storage", storage))
    command = [sys.executable, *program, "run", "small.yaml", "--storage", str(storage)]
    environment = {**ENVIRONMENT, "CALSTUDY_TEST": str(folder)}
    with (folder / "out").open("w") as out:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)


def _check_said(folder: Path, lost: str) -> None:
    text = (folder / "out").read_text()
    assert f"stopped by the loss of Ray's {lost}. Resume: calstudy run small\n" in text
    assert "Traceback" not in text


def _pids(mark: str, program: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            is_ours = mark.encode() in (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_ours and words[0].endswith(f"/{program}".encode()):
            found.append(int(process.name))
    return found


def test_a_head_that_is_lost_while_nodes_are_checked_is_said_and_ends_the_run(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = Stopping()
    monkeypatch.setattr(run, "joined", lambda *taken: nullcontext())
    monkeypatch.setattr(run, "control_store", lambda: "10.0.0.1:6379")
    monkeypatch.setattr(watching, "head_question", lambda address: head.ask)
    monkeypatch.setattr(watching, "lost_services", lambda: [])

    def admitted(*taken: object) -> None:
        head.answers = False
        assert until(stopping.requested)

    monkeypatch.setattr(run, "admitted", admitted)
    monkeypatch.setattr(run, "asking", lambda address, stopping: nullcontext(lambda wanted: None))
    spec = SimpleNamespace(name="small", needs={}, variants=[], budget=None, trials=1)
    prepared = SimpleNamespace(digest="0")
    shown: list[str | None] = []
    display: Any = SimpleNamespace(say=None, waiting=shown.append)
    asked: tuple[Any, ...] = (spec, Path(), prepared, "10.0.0.1:6379", display, None, None)
    with run._ray(*asked, stopping, NO_WAIT):
        pass
    assert stopping.caught == "the loss of Ray's head at 10.0.0.1:6379"
    assert any(
        line is not None
        and line.startswith("Ray: its head at 10.0.0.1:6379 does not answer; waiting (")
        for line in shown
    )
