"""What a run waits for on a cluster: by a clock that the test turns, on nodes that it names; and
once on a real one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from study.machines import held, waiting
from study.machines.guarded import Unfit
from study.machines.ray_compat import Holding
from study.machines.ray_session import ClusterError, ClusterUnready
from study.machines.waiting import CHECK_SECONDS, admitted
from study.schema.errors import TryAgain
from study.schema.resources import Resources
from study.schema.wait import NO_WAIT, Wait, duration
from study.store.study import open_study
from tests.hosts import network, start_head, start_worker
from tests.patience import patient, wait_until
from tests.shared import with_empty_mlflow
from tests.study.command_line import write_spec
from tests.study.test_cli import calstudy
from trainables.problems import UserError

OLD = "has numpy 1.0.0."


class Cluster:
    """Nodes of two CPUs that arrive at given seconds; those in `unfit` fail the check."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, arrives: dict[str, float], **sizes: float
    ) -> None:
        self.now = 0.0
        self.steps: list[str] = []
        self.lines: list[str] = []
        self.checked: list[list[str]] = []
        self.unfit: list[str] = []
        self._arrives = arrives
        self._sizes = sizes
        self._needs: dict[str, Resources] = {}
        self.stop_at = float("inf")
        self.autoscaler: bool | None = False
        self.taken: dict[str, float] = {}  # CPUs that job 02 holds, by node
        self.taken_until = float("inf")
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(waiting, "time", clock)
        monkeypatch.setattr(waiting, "alive_nodes", self._alive)
        monkeypatch.setattr(waiting, "ray_nodes", self._alive)
        monkeypatch.setattr(waiting, "check_nodes", self._check)
        monkeypatch.setattr(waiting, "autoscaler_is_active", lambda: self.autoscaler)
        monkeypatch.setattr(held, "free_resources", self._free)
        monkeypatch.setattr(held, "holdings", self._holdings)
        monkeypatch.setattr(held, "other_jobs", lambda: {"02": "python hog.py, process 8 on a"})

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _alive(self) -> list[Any]:
        return [
            {
                "Alive": True,
                "NodeID": name,
                "NodeManagerAddress": f"10.0.0.{name}",
                "Resources": {"CPU": self._sizes.get(name, 2.0)},
            }
            for name, at in self._arrives.items()
            if at <= self.now
        ]

    def _holdings(self) -> list[Holding]:
        there = self.taken.items() if self.now < self.taken_until else ()
        return [Holding("02", node, {"CPU": cpus}) for node, cpus in there]

    def _free(self) -> dict[str, dict[str, float]]:
        free = {node["NodeID"]: dict(node["Resources"]) for node in self._alive()}
        for each in self._holdings():
            free[each.node]["CPU"] -= each.resources["CPU"]
        return free

    def _check(self, *taken: object) -> list[Unfit]:
        needs = self._needs.values()
        there = [
            node["NodeID"]
            for node in self._alive()
            if any(node["Resources"]["CPU"] >= each.cpu for each in needs)
        ]
        self.checked.append(there)
        found = [Unfit(name, OLD) for name in there if name in self.unfit]
        if found and len(found) == len(there):
            raise ClusterUnready(f"node 10.0.0.{found[0].node}: {OLD}")
        return found

    def admitted(self, wait: Wait, **cpus: float) -> list[str]:
        self._needs = {label: Resources(cpu=each) for label, each in (cpus or {"focal": 1}).items()}
        spec: Any = SimpleNamespace(needs=self._needs)
        stopped = lambda: self.now >= self.stop_at  # noqa: E731
        steps = self.steps.append
        found = admitted(spec, Path(), "0", wait, steps, self.lines.append, stopped)
        return [unfit.node for unfit in found]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("1.5m", 90), ("0s", 0)]
)
def test_a_duration(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5", "--wait: '5' has no unit. Write 5m."),
        ("five", "--wait: 'five' is no duration. Write 90s, 15m or 2h."),
        ("-5m", "--wait: '-5m' is no duration. Write 90s, 15m or 2h."),
        ("", "--wait: '' is no duration. Write 90s, 15m or 2h."),
    ],
)
def test_no_duration(text: str, words: str) -> None:
    with pytest.raises(UserError) as refused:
        duration(text)
    assert str(refused.value) == words


@pytest.mark.parametrize("command", ["run", "confirm", "plan"])
def test_what_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for given, words in (
        ("--address a:1 --wait 5", "--wait: '5' has no unit. Write 5m."),
        ("--address a:1 --nodes 0", "0 is not in the range x>=1"),
        ("--address a:1 --nodes 2 --slots 2", "use only one of --nodes and --slots."),
        *(
            (option, f"{option.split()[0]} is for a cluster, and there is none without --address.")
            for option in ("--nodes 2", "--slots 2", "--wait 5m")
        ),
    ):
        code, _, said = calstudy(capsys, command, "mine.yaml", *given.split())
        assert code == 2 and words in said and len(said.splitlines()) == 1


def test_without_the_options_a_node_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"1": 0.0, "2": 1.0})
    with pytest.raises(ClusterError, match="4 CPU on one node; nodes have 2 CPU/0 GPU") as refused:
        cluster.admitted(NO_WAIT, focal=4)
    assert not isinstance(refused.value, TryAgain)  # exit code 2
    assert cluster.admitted(NO_WAIT) == [] and cluster.now == 0 and cluster.checked == [["1"]]


@pytest.mark.parametrize("autoscaler", [True, None])
def test_with_an_autoscaler_no_worker_is_no_error(
    monkeypatch: pytest.MonkeyPatch, autoscaler: bool | None
) -> None:
    cluster = Cluster(monkeypatch, {"1": 300.0})
    cluster.autoscaler = autoscaler
    if autoscaler is None:
        with pytest.raises(ClusterError):
            cluster.admitted(NO_WAIT)
        assert cluster.now == 0
        cluster.admitted(Wait("15m"))
    else:
        cluster.admitted(NO_WAIT)
    assert 300 <= cluster.now < 310
    assert cluster.steps == ["waiting up to 15m for a node with 1 CPU for a trial of focal"]


@pytest.mark.parametrize(
    ("wait", "arrived", "steps"),
    [
        (Wait("5m", nodes=3), 60, ["nodes: 1 of 3 there", "nodes: 2 of 3 there"]),
        (Wait(nodes=2), 20, ["nodes: 1 of 2 there"]),
        (Wait("5m", slots=5), 60, ["slots: 2 of 5 there", "slots: 4 of 5 there"]),
        (Wait("5m"), 0, []),
    ],
)
def test_as_many_as_asked_for_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, wait: Wait, arrived: float, steps: list[str]
) -> None:
    cluster = Cluster(monkeypatch, {"0": 0.0, "1": 0.0, "2": 20.0, "3": 60.0}, **{"0": 0.0})
    assert cluster.admitted(wait) == []
    assert arrived <= cluster.now < arrived + 10 and cluster.lines == []
    patience = wait.text or "15m"
    assert cluster.steps == [f"waiting up to {patience} for {step}" for step in steps]
    assert len(cluster.checked) == 1  # all at once


def test_when_the_time_is_up_the_study_begins_with_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, {"1": 0.0, "2": 20.0})
    assert cluster.admitted(Wait("1m", nodes=4)) == []
    assert cluster.now == 60 and cluster.checked == [["1", "2"]]
    assert cluster.lines == ["--nodes: 2 of 4 there after 1m; the study begins with these."]


@pytest.mark.parametrize("arrives", [{}, {"1": 0.0}])
def test_with_no_node_that_fits_it_ends_and_may_be_run_again(
    monkeypatch: pytest.MonkeyPatch, arrives: dict[str, float]
) -> None:
    cluster = Cluster(monkeypatch, arrives)
    with pytest.raises(ClusterUnready) as ended:
        cluster.admitted(Wait("1m", nodes=2), focal=1, mbls=4)
    assert isinstance(ended.value, TryAgain)  # exit code 75
    lacks, there = "mbls, which needs 4 CPU", "nodes have 2 CPU/0 GPU"
    if not arrives:
        lacks, there = "focal, which needs 1 CPU", "there is no node"
    assert str(ended.value) == (
        f"--wait: after 1m no node fits a trial of {lacks}; {there}. Run again once there is one,"
        " or wait longer."
    )


def test_what_others_hold_is_waited_for_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"1": 0.0})
    cluster.taken = {"1": 2.0}
    job = "2 CPU held by job 02 (python hog.py, process 8 on a)"
    nothing = f"nothing is free for a trial of focal, which needs 1 CPU: {job}"
    with pytest.raises(ClusterUnready) as ended:
        cluster.admitted(Wait("20s", slots=1))
    assert isinstance(ended.value, TryAgain) and 20 <= cluster.now < 25  # exit code 75
    assert cluster.steps == [f"waiting up to 20s: {nothing}"]
    assert str(ended.value) == f"--wait: after 20s {nothing}. {held.LATER}"

    cluster.taken_until = cluster.now + 10
    assert cluster.admitted(Wait("20s")) == [] and cluster.now < 40  # once it is free

    cluster.taken, cluster.taken_until = {"1": 1.0}, float("inf")
    assert cluster.admitted(Wait("1m", slots=2)) == []
    assert cluster.lines == [
        "--slots: 1 of 2 free after 1m (1 CPU held by job 02 (python hog.py, process 8 on a)); the"
        " study begins with these."
    ]


def test_where_an_autoscaler_adds_nodes_trials_wait_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It adds none for what is only asked for: that may be held by others."""
    cluster = Cluster(monkeypatch, {"1": 0.0})
    cluster.taken = {"1": 2.0}
    cluster.autoscaler = True
    assert cluster.admitted(Wait("20s", slots=1)) == [] and cluster.now == 0


def test_a_node_that_is_not_fit_does_not_count_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, {"1": 0.0, "2": 0.0})
    cluster.unfit = ["2"]
    assert cluster.admitted(Wait("1m", nodes=2)) == ["2"]
    assert len(cluster.checked) in (60 // CHECK_SECONDS, 1 + 60 // CHECK_SECONDS)
    assert cluster.steps[-1] == "waiting up to 1m for nodes: 1 of 2 there (1 passed over)"
    assert cluster.lines == ["--nodes: 1 of 2 there after 1m; the study begins with these."]


def test_when_no_node_is_fit_the_end_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {"1": 0.0})
    cluster.unfit = ["1"]
    with pytest.raises(ClusterUnready, match=re.escape(f"node 10.0.0.1: {OLD}")):
        cluster.admitted(Wait("1m"))
    assert cluster.now >= 60


def test_a_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, {})
    cluster.stop_at = 30.0
    with pytest.raises(KeyboardInterrupt):
        cluster.admitted(Wait("1h"))
    assert cluster.now < 35


@pytest.mark.slow
def test_a_run_on_a_head_alone_waits_for_its_workers(hosts_allowed: None, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with network(3, shared) as (head, *workers):
        start_head(head, cpus=0)
        words = ["run", str(write_spec(shared / "small.yaml", trials=1))]
        words += ["--storage", str(shared / "studies")]
        with_empty_mlflow(words)
        run = ["python", "-m", "study.cli", *words, "--address", "auto"]
        refused = head.run(run, check=False, timeout=280)
        assert refused.returncode == 2 and "nodes have 0 CPU/0 GPU" in refused.stderr
        assert not (shared / "studies" / "small" / "study.yaml").exists()
        log = shared / "log"
        with log.open("w") as file:
            driver = head.popen(
                [*run, "--nodes", "2", "--wait", "10m"], stdout=file, stderr=subprocess.STDOUT
            )
        wait_until(lambda: "waiting up to 10m for a node with 1 CPU" in log.read_text(), 240, "it")
        start_worker(workers[0], head)
        wait_until(lambda: "for nodes: 1 of 2 there" in log.read_text(), 240, "one")
        start_worker(workers[1], head)
        assert driver.wait(patient(280)) == 0, log.read_text()
        hosts = {record.host for record in open_study("small", str(shared / "studies")).records()}
    assert hosts <= {"host-1", "host-2"} and hosts
