"""This machine with an MLflow server that is away, in trouble, or does what it is
asked and does not say so."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import ClassVar

from benchmarks.chaos.mlflow_server import MlflowServer, Proxy
from benchmarks.chaos.processes import wait_for
from benchmarks.chaos.stage import INTERRUPTED, LACKS, Ground, Stage, Strike, by_kind

ONE_IN = 100  # requests: 1%
LOSING = ("runs/create", "runs/log-batch", "runs/update")
# A study that lasts sends such requests all the time.
REQUEST_SECONDS = 90.0
END_SECONDS = 120.0


def mlflow_killed(stage: Stage) -> Strike:
    """The server is gone, and still is when the driver is asked to end; `sync` and `run`
    fill in what it missed."""
    ground = _ground(stage)
    ground.proxy.close()
    pid = ground.server.kill()
    time.sleep(stage.random.uniform(2.0, 5.0))
    wrong: list[str] = []
    said, seen = stage.printed(LACKS), stage.seen()
    stage.signal_driver(signal.SIGTERM)
    if stage.printed(LACKS) == said:
        wrong.append("the driver did not say that MLflow lacks trials")
    ground.server.start()
    ground.proxy.open()
    done = _synced(stage)
    if done.returncode:
        wrong.append(f"sync: exit {done.returncode}, {done.stderr.strip()[-200:]}")
    stage.start()
    return Strike(pid, taken_up=2, seen=seen, check=lambda: wrong)


def mlflow_restarted(stage: Stage) -> Strike:
    """The server is gone and soon there again, while the study goes on."""
    ground = _ground(stage)
    ground.proxy.close()
    pid = ground.server.kill()
    time.sleep(stage.random.uniform(0.0, 6.0))
    ground.server.start()
    ground.proxy.open()
    return Strike(pid)


def mlflow_errors(stage: Stage) -> Strike:
    """One of a hundred requests is answered with an error of the server, done
    or not: until one was."""
    ground, happened = _ground(stage), threading.Event()
    ground.proxy.fail(ONE_IN, lambda path: happened.set())
    try:
        return _when_it_has_happened(stage, happened)
    finally:
        ground.proxy.stop_failing()


def mlflow_lost_answer(stage: Stage) -> Strike:
    """The server does what it is asked, and the connection ends before it has said so."""
    path = stage.random.choice(LOSING)
    return _when_it_has_happened(stage, _ground(stage).proxy.lose_answer(path))


def mlflow_read_only(stage: Stage) -> Strike:
    """The server refuses every write until the run has ended, which it must; the next run
    uploads what it lacks."""
    ground, pid = _ground(stage), stage.driver_pid()
    ground.proxy.read_only = True
    try:
        stage.driver_may_end()
        stage.wait_for_end(END_SECONDS, "an MLflow that refuses writes", INTERRUPTED)
    finally:
        ground.proxy.read_only = False
    wrong = [] if stage.complete() else ["the run ended before its trials"]
    stage.start()
    return Strike(pid, recovered=lambda: not stage.alive, check=lambda: wrong)


def mlflow_drips(stage: Stage) -> Strike:
    """Each answer comes a byte a second, and never whole: the run ends all the same, `sync` too,
    and the next run uploads what is lacking."""
    ground, pid = _ground(stage), stage.driver_pid()
    ground.proxy.drips.set()
    try:
        stage.driver_may_end()
        stage.wait_for_end(END_SECONDS, "an MLflow that drips", INTERRUPTED)
        synced = _synced(stage)
    finally:
        ground.proxy.drips.clear()
    wrong = [] if stage.complete() else ["the run ended before its trials"]
    if synced.returncode != INTERRUPTED:
        wrong.append(f"sync: exit {synced.returncode}, {synced.stderr.strip()[-200:]}")
    stage.start()
    return Strike(pid, recovered=lambda: not stage.alive, check=lambda: wrong)


def experiment_renamed(stage: Stage) -> Strike:
    """The driver is gone, and before the next one starts somebody gives the study's experiment
    another name: no run of it is made twice."""
    import mlflow

    pid = stage.signal_driver(stage.random.choice([signal.SIGKILL, signal.SIGTERM]))
    client = mlflow.MlflowClient(_ground(stage).server.url)
    names = {one.name: one.experiment_id for one in client.search_experiments()}
    ours = [name for name in names if name.startswith(stage.name)]
    if ours:
        client.rename_experiment(names[ours[0]], f"{stage.name} {len(names)}{int(time.time())}")
    stage.start()
    wrong = [] if ours else ["the study has no experiment"]
    return Strike(pid, taken_up=2, check=lambda: wrong)


def _synced(stage: Stage) -> subprocess.CompletedProcess[str]:
    words = ["sync", stage.name, "--storage", str(stage.ground.storage), *stage.ground.words]
    return subprocess.run(
        [sys.executable, "-m", "study.cli", *words],
        capture_output=True,
        text=True,
        timeout=END_SECONDS,
        check=False,
    )


def _when_it_has_happened(stage: Stage, happened: threading.Event) -> Strike:
    ground = _ground(stage)
    assert ground.server.process is not None
    wait_for(lambda: happened.is_set() or not stage.alive, REQUEST_SECONDS)
    if not happened.is_set():
        raise ProcessLookupError
    return Strike(ground.server.process.pid)


def _ground(stage: Stage) -> Tracking:
    assert isinstance(stage.ground, Tracking)
    return stage.ground


class Tracking(Ground):
    """Many short trials: MLflow has much to do."""

    faults = by_kind(
        mlflow_killed, mlflow_restarted, mlflow_errors, mlflow_lost_answer, experiment_renamed
    )
    study: ClassVar = {"model": {"name": "mlp", "width": 128}, "epochs": 6, "trials": 60}

    def __enter__(self) -> Ground:
        super().__enter__()
        self.server = MlflowServer(self.directory, self.environment())
        self.server.start()
        self.proxy = Proxy(self.server, self.random)
        self.proxy.open()
        self.words, self.tracking = ("--tracking", self.proxy.url), self.server.url
        return self

    def __exit__(self, *fault: object) -> None:
        self.proxy.close()

    def stays(self, pid: int) -> bool:
        return self.server.owns(pid)


class ReadOnly(Tracking):
    """Few trials: a run ends soon after its server has become read-only, or drips."""

    faults = by_kind(mlflow_read_only, mlflow_drips)
    study: ClassVar = {"model": {"name": "mlp", "width": 128}, "epochs": 30, "trials": 6}
