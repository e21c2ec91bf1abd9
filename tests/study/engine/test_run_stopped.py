"""Whole studies that are preempted: all is signalled at once, the terminal is closed,
nobody reads the output."""

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from benchmarks.chaos.processes import MARK, end_marked, marked
from study.store.study import open_study
from tests.patience import patient, wait_until
from tests.study.command_line import ENVIRONMENT, here, write_spec
from tests.study.counting import counted_once

pytestmark = [pytest.mark.slow, pytest.mark.platform]


class Session:
    """A `calstudy run` in a session of its own, as a terminal or a batch system starts it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark, self.process = folder, uuid.uuid4().hex, None
        self.plan(trials=2, epochs=1500)

    def plan(self, trials: int, epochs: int) -> None:
        """Write the spec."""
        keys = {"methods": ["cross_entropy"], "trials": trials, "epochs": epochs}
        self.spec = write_spec(self.folder / "small.yaml", **keys, checkpoint_seconds=0.5)
        self.trials = trials

    def run(self, *words: object) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "study.cli",
            "run",
            self.spec,
            "--storage",
            self.folder,
            *words,
        ]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {**ENVIRONMENT, MARK: self.mark}
        self.process = subprocess.Popen(
            [*map(str, command)], env=environment, start_new_session=True, **pipes
        )
        return self.process

    def signalled(self, number: signal.Signals) -> None:
        """All that runs gets it at the same moment."""
        for pid in marked(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def trains(self) -> bool:
        logs = list(self.folder.glob("small/trials/*/*/*/log"))
        return len(logs) == self.trials and all("epoch=" in log.read_text() for log in logs)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(tmp_path)
    yield made
    end_marked(made.mark)
    if made.process is not None:
        made.process.communicate()


def ended(session: Session) -> str:
    """Ended in order, long before Ray would have ended the process: what it printed."""
    assert session.process is not None
    shown, said = session.process.communicate(timeout=patient(200))
    assert session.process.returncode == 75, shown + said
    assert (
        "Traceback" not in shown + said
        and 'File "' not in shown + said
        and "Failed to connect" not in said
    )
    wait_until(lambda: not marked(session.mark), 30)
    return shown + said


def parents_status(folder: Path) -> str:
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    (parent,) = client.search_runs([experiment.experiment_id], "tags.`mlflow.runName` = 'small'")
    return str(parent.info.status)


def can_go_on(session: Session) -> None:
    """Its trials are where they were, and no death was counted against them."""
    study = open_study("small", str(session.folder))
    assert [record.state for record in study.records()] == ["running"] * session.trials
    assert not any(record.deaths for record in study.records())


@pytest.mark.parametrize(
    ("name", "reach"),
    [
        ("SIGTERM", lambda session: session.signalled(signal.SIGTERM)),  # Slurm, systemd
        # A terminal that is closed.
        ("SIGHUP", lambda session: os.killpg(session.process.pid, signal.SIGHUP)),
    ],
    ids=["SIGTERM to all", "SIGHUP to the group"],
)
def test_everything_is_signalled(
    session: Session, name: str, reach: Callable[[Session], None]
) -> None:
    """Its control store is gone, for which Ray waits for 60 seconds before it kills the driver."""
    if name == "SIGTERM":  # it goes on to its end
        session.plan(trials=1, epochs=500)
    session.run()
    wait_until(session.trains)
    reach(session)
    shown = ended(session)
    resume = f"Resume: calstudy run small --storage {session.folder}"
    assert shown.endswith(f"stopped by {name}. {resume}\n")
    assert parents_status(session.folder) == "KILLED"
    can_go_on(session)
    audit = here("audit", "small", "--storage", session.folder)
    left = f"0 complete, {session.trials} interrupted; 0 lost, 0 duplicated"
    assert f"{session.trials} trials planned: {left}" in audit
    if name == "SIGTERM":  # once is enough: both end by the same way
        here("run", session.spec, "--storage", session.folder)
        counted_once(session.folder, session.trials)


def test_ctrl_c_while_ray_starts(session: Session) -> None:
    process = session.run()
    wait_until(lambda: marked(session.mark, "gcs_server"))
    os.killpg(process.pid, signal.SIGINT)
    resume = f"Resume: calstudy run small --storage {session.folder}"
    assert ended(session).endswith(f"stopped by SIGINT. {resume}\n")


def test_an_output_that_is_closed_and_a_tracking_server_that_is_silent(session: Session) -> None:
    """`calstudy run ... | head -1`."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        process = session.run("--tracking", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert process.stdout is not None
        assert any(line.startswith("small: 2 of 2 trials to run") for line in process.stdout)
        wait_until(session.trains)
        process.stdout.close()
        assert process.stderr is not None
        process.wait(patient(200))
        assert process.returncode == 75
        resume = f"Resume: calstudy run small --storage {session.folder}"
        assert process.stderr.read() == f"stopped by a closed output. {resume}\n"
        wait_until(lambda: not marked(session.mark), 30)
        session.process = None
    can_go_on(session)


def test_the_notebook_that_follows_it_is_killed(session: Session) -> None:
    """In order: nothing is left running, MLflow is told, and the study can go on."""
    given = f"{str(session.spec)!r}, {str(session.folder)!r}"
    session.process = subprocess.Popen(
        [sys.executable, "-c", f"from study import Study; Study.from_spec({given}).run()"],
        env={**ENVIRONMENT, MARK: session.mark},
        stdout=subprocess.DEVNULL,
    )
    wait_until(session.trains)
    session.process.kill()
    session.process.wait()
    wait_until(lambda: not marked(session.mark), 60)
    assert parents_status(session.folder) == "KILLED"
    can_go_on(session)
