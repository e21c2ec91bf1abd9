"""Three machines: a head that trains nothing and runs the driver, and two workers that
a service manager restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from typing import Any, ClassVar

from benchmarks.chaos import clock
from benchmarks.chaos.processes import ACTOR, command_line, wait_for
from benchmarks.chaos.stage import CHECKOUT, INTERRUPTED, Ground, Stage, Strike, by_kind
from tests.hosts import Host, network, nodes, refusal, start_head, start_worker

PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"
# By its defaults Ray takes a minute to see that a node is gone; the same
# happens here within seconds.
HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
    PATIENCE: "15",
}
# A driver whose head is gone gives up after the last of these; it may take a minute to notice.
GIVES_UP_SECONDS = 150.0
NODES_SECONDS = 180.0


def raylet_sigkill(stage: Stage) -> Strike:
    """The process by which a node belongs to the cluster is gone, and what it trains with it."""
    worker = _a_worker(stage)
    pid, before = _raylet(worker), _deaths(stage)
    os.kill(pid, signal.SIGKILL)

    def check() -> list[str]:
        died = _deaths(stage) - before  # none where its trial had just ended
        return (
            []
            if not died or died["node"]
            else [f"the trial's death was put down to {', '.join(died)}"]
        )

    return Strike(pid, taken_up=1, and_then=_ground(stage).whole, check=check)


def head_sigkill(stage: Stage) -> Strike:
    """The head's control store and raylet are gone, or its power: raised anew,
    and the driver with it."""
    ground = _ground(stage)
    pid = ground.head.gcs_pid()
    if stage.random.random() < 0.5:
        os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(_raylet(ground.head), signal.SIGKILL)
        assert stage.driver is not None
        with suppress(subprocess.TimeoutExpired):
            stage.driver.wait(GIVES_UP_SECONDS)
    gone = (
        []
        if not stage.alive or stage.driver is None
        else ["the driver was still there long after its head"]
    )
    ground.head.kill()
    if stage.driver is not None:
        stage.driver.wait()
    ground.head.boot()
    ground.raise_head()
    back = [] if ground.whole() else ["the workers did not join the new head"]
    stage.driver_may_end()
    stage.start()
    return Strike(pid, taken_up=2, check=lambda: gone + back)


def head_lost(stage: Stage) -> Strike:
    """The head's control store and raylet are gone for good: the driver says so and
    ends, before Ray ends it."""
    ground = _ground(stage)
    pid, seen = ground.head.gcs_pid(), stage.seen()
    stage.driver_may_end()
    os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(_raylet(ground.head), signal.SIGKILL)
    stage.wait_for_end(GIVES_UP_SECONDS, "a lost head", INTERRUPTED)
    wrong = (
        []
        if stage.printed("stopped by the loss of Ray's")
        else ["the driver did not say what stopped it"]
    )
    ground.head.kill()
    ground.head.boot()
    ground.raise_head()
    back = [] if ground.whole() else ["the workers did not join the new head"]
    stage.start()
    return Strike(pid, taken_up=2, seen=seen, check=lambda: wrong + back)


def partition(stage: Stage) -> Strike:
    """A node is cut from the network for some seconds, in which it may have been given up."""
    return _cut(stage, stage.random.uniform(2.0, 25.0))


def partition_two_minutes(stage: Stage) -> Strike:
    """A node is cut from the network and given up; it trains on, in vain, and comes back."""
    return _cut(stage, 120.0)


def _cut(stage: Stage, seconds: float) -> Strike:
    worker = _a_worker(stage)
    pid = _raylet(worker)
    worker.cut()
    time.sleep(seconds)
    worker.mend()
    return Strike(pid, and_then=_ground(stage).whole)


def partition_for_good(stage: Stage) -> Strike:
    """A node is cut from the network and trains on; when it has been given up, it is
    replaced by another machine."""
    worker, ground = _a_worker(stage), _ground(stage)
    pid = _raylet(worker)
    worker.cut()
    return Strike(pid, taken_up=1, and_then=lambda: ground.replace(worker, {}))


def node_clock_skew(stage: Stage) -> Strike:
    """A node's power fails, and the machine that takes its place has another time of day."""
    worker, ground = _a_worker(stage), _ground(stage)
    pid = _raylet(worker)
    ground.replace(worker, clock.skewed(ground.directory, stage.random.choice(clock.SKEWS)))
    return Strike(pid, taken_up=1, and_then=ground.whole)


def _ground(stage: Stage) -> Nodes:
    assert isinstance(stage.ground, Nodes)
    return stage.ground


def _deaths(stage: Stage) -> Counter[str]:
    """Of all trials so far, by cause."""
    return sum((Counter(record.deaths) for record in stage.records().values()), Counter())


def _a_worker(stage: Stage) -> Host:
    """One of those that train. ProcessLookupError where an actor may be idle,
    kept for the next trial."""
    training = [worker for worker in _ground(stage).workers if worker.pids(ACTOR)]
    if not training or len(stage.training()) < len(training):
        raise ProcessLookupError
    return stage.random.choice(training)


def _raylet(host: Host) -> int:
    try:
        return host.raylet_pid()
    except RuntimeError:  # it is just being started again
        raise ProcessLookupError from None


class Nodes(Ground):
    """A Ray cluster with token authentication on namespaced hosts; the studies lie where
    all of them see them."""

    faults = by_kind(
        raylet_sigkill,
        head_sigkill,
        head_lost,
        partition,
        partition_two_minutes,
        partition_for_good,
        node_clock_skew,
    )
    study: ClassVar = {"trials": 4}

    @classmethod
    def refusal(cls) -> str | None:
        return refusal() or clock.refusal()

    def __enter__(self) -> Ground:
        super().__enter__()
        self._stack = ExitStack()
        self.head, *self.workers = self._stack.enter_context(network(3, self.directory))
        self.raise_head()
        for worker in self.workers:
            self._join(worker, {})
        self.words = ("--address", f"{self.head.address}:6379")
        return self

    def __exit__(self, *fault: object) -> None:
        self._stack.close()

    def environment(self) -> dict[str, str]:
        # Folders for temporary files are each host's own.
        shared = {
            name: value
            for name, value in super().environment().items()
            if not name.endswith("TMPDIR")
        }
        return {**shared, **HEALTH, "PYTHONWARNINGS": "ignore"}

    def popen(
        self, command: list[str], environment: dict[str, str], **options: Any
    ) -> subprocess.Popen[Any]:
        # A driver's own is longer.
        own = {name: value for name, value in environment.items() if name != PATIENCE}
        return self.head.popen(command, env=own, cwd=CHECKOUT, **options)

    def stays(self, pid: int) -> bool:
        words = command_line(pid)
        return not (
            words.startswith(ACTOR) or (words.startswith(sys.executable) and "study.cli" in words)
        )

    def raise_head(self) -> None:
        """Start Ray on the head."""
        start_head(self.head, cpus=0, env=self.environment())

    def _join(self, worker: Host, environment: dict[str, str]) -> None:
        start_worker(
            worker, self.head, cpus=1, env={**self.environment(), **environment}, supervised=True
        )

    def replace(self, worker: Host, environment: dict[str, str]) -> bool:
        """Another machine in the place of a worker."""
        worker.kill()
        worker.boot()
        worker.mend()
        self._join(worker, environment)
        return True

    def whole(self) -> bool:
        """Whether all nodes are in the cluster (again)."""
        addresses = [host.address for host in (self.head, *self.workers)]
        return bool(wait_for(lambda: self._alive(addresses), NODES_SECONDS, 2.0))

    def _alive(self, addresses: list[str]) -> bool:
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            found = nodes(self.head)
            return all(found.get(address, False) for address in addresses)
        return False
