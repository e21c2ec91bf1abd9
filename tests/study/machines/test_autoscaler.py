"""What an autoscaler is asked for; and Ray's own, with nodes that it only pretends to buy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray

from study.engine.budget import Spending
from study.engine.demand import busy_line, first_demand, kept_busy, may_be_asked
from study.machines import autoscaler
from study.machines.autoscaler import Requests
from study.schema.reading import read_spec
from study.schema.resources import Resources
from study.schema.spec import StudySpec
from study.store.study import open_study
from study.store.trials import Trials
from tests.gate import write_extensions
from tests.hosts import Host, Process, network, start_head
from tests.patience import patient, wait_until
from tests.study.command_line import here, write_spec

ONE = {"CPU": 1.0}


# ---- how many ------------------------------------------------------------------------------------


def spec_of(folder: Path, **keys: Any) -> StudySpec:
    return read_spec(write_spec(folder / "small.yaml", **keys))


def test_a_method_waits_for_a_sixth_of_its_trials_after_its_first_ones(tmp_path: Path) -> None:
    """Cross-entropy with one value searched: two start-up trials; of 24 a sixth is four."""
    spec = spec_of(tmp_path, trials=24)
    assert [
        may_be_asked(spec, "cross_entropy", 24, *each) for each in ((0, 0), (2, 0), (5, 3))
    ] == [
        2 + 4,
        4,
        1,
    ]
    assert may_be_asked(spec, "cross_entropy", 24, 23, 0) == 1
    assert may_be_asked(spec, "cross_entropy", 24, 24, 0) == 0
    assert kept_busy(spec) == {Resources(): 2 * 4}
    # Focal: two values searched, so four start-up trials; three defaults.
    assert first_demand(spec, Trials({})) == {Resources(): 2 + 4 + 4 + 4}


def test_what_learns_from_no_result_waits_for_none(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, trials=24, sampler={"name": "random"})
    assert kept_busy(spec) == first_demand(spec, Trials({})) == {Resources(): 48}


def test_the_line_of_plan(tmp_path: Path) -> None:
    """Ten methods of 24 trials: each waits for four, as `sampler.pending` would say."""
    methods = [{"label": f"focal_{n}", "name": "focal"} for n in range(10)]
    ten = {"methods": methods, "trials": 24}
    gpu = {"resources": {"cpu": 1, "gpu": 0.5}}
    assert busy_line(spec_of(tmp_path, **ten)).startswith(
        "about 40 trials on 40 CPUs (80 trials at first); a method waits for the results of 4"
    )
    assert busy_line(spec_of(tmp_path, **ten, **gpu)).startswith("about 40 trials on 20 GPUs (")
    raised = busy_line(spec_of(tmp_path, **ten, sampler={"name": "tpe", "pending": 8}))
    assert raised.startswith("about 80 trials on 80 CPUs (120 trials at first)")
    # Brier has nothing to search but what is searched for all: here nothing.
    some = spec_of(tmp_path, methods=["brier", "focal"], trials=24, search_space={})
    assert busy_line(some).startswith("about 4 trials on 4 CPUs (31 trials at first)")
    every = spec_of(tmp_path, **ten, sampler={"name": "random"})
    assert busy_line(every) == "all 240 trials on 240 CPUs"
    assert (busy_line(every, 300), busy_line(every, 8)) == ("all 240 trials on 240 CPUs", "8 here")


def test_the_line_of_plan_says_what_happens_here(tmp_path: Path) -> None:
    methods = [{"label": f"focal_{n}", "name": "focal"} for n in range(10)]
    ten = {"methods": methods, "trials": 24}
    here = busy_line(spec_of(tmp_path, **ten), 2)
    assert here == "2 here (the study could train about 40 at once)"
    more = busy_line(spec_of(tmp_path, **ten), 64)
    assert more.startswith("about 40 of 64 here (64 at first); a method waits for the results of 4")
    assert "`sampler: {pending: 7}` fills all" in more
    # What it says fills all, does.
    filled = busy_line(spec_of(tmp_path, **ten, sampler={"name": "tpe", "pending": 7}), 64)
    assert filled == "64 here (the study could train about 70 at once)"


def test_methods_of_other_needs_are_counted_apart(tmp_path: Path) -> None:
    methods = ["cross_entropy", {"name": "focal", "resources": {"cpu": 4}}]
    spec = spec_of(tmp_path, trials=24, methods=methods, sampler={"name": "tpe", "pending": 3})
    assert kept_busy(spec) == {Resources(): 3, Resources(cpu=4): 3}


def test_a_budget_pays_for_all_that_is_asked_for_together(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, budget={"cpu_hours": 1})
    empty = Trials({"cross_entropy": [], "focal": []})
    spending = Spending(spec, empty, {"cross_entropy": 0.1, "focal": 0.3})
    wanted = {"cross_entropy": 3, "focal": 9}
    assert spending.may_begin_of(wanted) == {"cross_entropy": 3, "focal": 2}
    assert spending.may_begin_of({"cross_entropy": 99, "focal": 0})["cross_entropy"] == 10
    unlimited = Spending(spec_of(tmp_path), empty, {})
    assert unlimited.may_begin_of(wanted) == wanted


# ---- how it is asked -----------------------------------------------------------------------------


def test_it_is_asked_when_the_demand_changes_again_later_and_for_nothing_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autoscaler, "RENEW_SECONDS", 0.05)
    sent: list[list[dict[str, float]]] = []
    heard = threading.Condition()

    def send(bundles: list[dict[str, float]]) -> None:
        with heard:
            sent.append(bundles)
            heard.notify()
        if len(sent) == 2:
            raise ConnectionError("the head is away")

    requests = Requests(send)
    requests.ask(Counter({Resources(): 2, Resources(cpu=2, gpu=0.5): 1}))
    with heard:
        assert heard.wait_for(lambda: len(sent) >= 4, 60)  # renewed, in spite of an error
    assert sent[0] == sent[3] == [ONE, ONE, {"CPU": 2, "GPU": 0.5}]
    requests.ask(Counter({Resources(): 1}))
    with heard:
        assert heard.wait_for(lambda: sent[-1] == [ONE], 60)
    requests.end()
    assert sent[-1] == []
    requests.ask(Counter({Resources(): 9}))
    requests.end()
    assert sent[-1] == []


def test_who_asked_for_nothing_takes_nothing_back() -> None:
    """It would be another study's."""
    sent: list[list[dict[str, float]]] = []
    Requests(sent.append).end()
    assert sent == []


# ---- Ray's own -----------------------------------------------------------------------------------

PROVIDER = Path(ray.__file__).parent / "autoscaler" / "_private" / "fake_multi_node"
HEAD_NODE = f"{'f' * 51}00000"  # as the provider expects it
WORKERS = 3
CONFIG = {
    "cluster_name": "fleet",
    "max_workers": WORKERS,
    "idle_timeout_minutes": 0.3,
    "provider": {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
        "launch_multiple": True,
        "head_node_id": HEAD_NODE,
    },
    "available_node_types": {
        "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
        "worker": {
            "resources": {"CPU": 1, "object_store_memory": 100_000_000},
            "node_config": {},
            "min_workers": 0,
            "max_workers": WORKERS,
        },
    },
    "head_node_type": "ray.head.default",
    "upscaling_speed": 1.0,
    "auth": {},
    "docker": {},
    "file_mounts": {},
    "file_mounts_sync_continuously": False,
    **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
    **{
        name: []
        for name in (
            "initialization_commands",
            "setup_commands",
            "head_setup_commands",
            "worker_setup_commands",
            "head_start_ray_commands",
            "worker_start_ray_commands",
        )
    },
}
# A cloud no longer lists a machine that it took back; the provider would, for ever.
TAKEN_BACK = """

_listed = FakeMultiNodeProvider.non_terminated_nodes


def _still_there(self, tag_filters):
    with self.lock:
        for node_id, node in list(self._nodes.items()):
            if "node" in node and node["node"].dead_processes():
                del self._nodes[node_id]
                node["node"].kill_all_processes(check_alive=False, allow_graceful=False)
    return _listed(self, tag_filters)


FakeMultiNodeProvider.non_terminated_nodes = _still_there
"""
# One process answers all questions: to import Ray takes a second of CPU, to ask it nothing.
ANSWERS = """
import json, sys
from ray._raylet import GcsClient

client = GcsClient("{head}:6379")
for question in sys.stdin:
    if question.strip() == "requested":
        print(client.internal_kv_get(b"autoscaler_resource_request", None).decode(), flush=True)
    else:
        found = client.get_all_node_info().items()
        print(json.dumps([key.hex() for key, each in found if each.state == 0]), flush=True)
"""


@dataclass(frozen=True)
class Fleet:
    """A head without CPUs, and an autoscaler that starts up to three workers on the same host."""

    head: Host
    shared: Path
    raylet: int  # the head's
    answers: Process

    def requested(self) -> list[dict[str, float]]:
        found: list[dict[str, float]] = json.loads(self._asked("requested"))
        return found

    def workers(self) -> set[str]:
        """The ids of those that are alive."""
        return set(json.loads(self._asked("alive"))) - {HEAD_NODE}

    def _asked(self, question: str) -> str:
        assert self.answers.stdin is not None and self.answers.stdout is not None
        self.answers.stdin.write(f"{question}\n")
        self.answers.stdin.flush()
        return self.answers.stdout.readline()

    def attempts(self, name: str) -> list[Path]:
        """Those that have begun."""
        return list((self.shared / "studies" / name).glob("trials/patient/*/attempt-*/log"))

    def preempt(self) -> None:
        """All workers but one are gone, as when a cloud takes spot machines back."""
        found = [pid for pid in self.head.pids("raylet/raylet") if pid != self.raylet]
        for pid in sorted(found)[1:]:
            os.kill(pid, signal.SIGKILL)

    def start(self, log: Path, *words: object) -> Process:
        command = ["python", "-m", "study.cli", "run", *map(str, words), "--address", "auto"]
        with log.open("w") as file:
            return self.head.popen(command, stdout=file, stderr=subprocess.STDOUT)


@pytest.fixture(scope="module")
def fleet(hosts_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    shared = tmp_path_factory.mktemp("fleet")
    # The provider's defaults are an example that Ray's wheel lacks.
    provider = shared / "provider"
    shutil.copytree(PROVIDER, provider)
    (provider / "example.yaml").write_text(json.dumps(CONFIG))
    with (provider / "node_provider.py").open("a") as file:
        file.write(TAKEN_BACK)
    (shared / "fleet.yaml").write_text(json.dumps(CONFIG))
    with network(1, shared) as (head,):
        head.run(["mount", "--bind", str(provider), str(PROVIDER)])
        environment = {
            "RAY_FAKE_CLUSTER": "1",
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_NODE,
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "AUTOSCALER_HEARTBEAT_TIMEOUT_S": "10",
        }
        options = [f"--autoscaling-config={shared / 'fleet.yaml'}"]
        start_head(head, cpus=0, options=options, env=environment)
        asked = ["python", "-c", ANSWERS.format(head=head.address)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with head.popen(asked, **pipes) as answers:
            yield Fleet(head, shared, head.raylet_pid(), answers)
            answers.kill()


def study(fleet: Fleet, name: str, **keys: Any) -> tuple[Path, Path]:
    """A spec whose trials take minutes, until its gate is opened."""
    folder = fleet.shared / name
    folder.mkdir()
    gate = folder / "gate"
    write_extensions(folder / "extensions", gate, seconds=2.0)
    spec = write_spec(
        folder / f"{name}.yaml",
        name=name,
        methods=["patient"],
        epochs=6,
        extensions="extensions",
        storage=str(fleet.shared / "studies"),
        **keys,
    )
    return spec, gate


@pytest.mark.slow
def test_a_fleet_grows_at_once_is_preempted_grows_again_and_goes(fleet: Fleet) -> None:
    """0 -> 3 -> 1 -> 3 -> 0 workers, without an option."""
    spec, gate = study(fleet, "grows", trials=9, sampler={"name": "tpe", "pending": 6})
    log = fleet.shared / "grows.log"
    driver = fleet.start(log, spec)
    try:
        wait_until(lambda: len(fleet.workers()) == WORKERS, 240, f"3 workers: {log.read_text()}")
        # Two start-up trials, and six more; one again of a node that was gone.
        assert fleet.requested() in ([ONE] * 8, [ONE] * 9)
        wait_until(lambda: len(fleet.attempts("grows")) >= WORKERS, 240, f"it: {log.read_text()}")
        before = fleet.workers()
        fleet.preempt()
        wait_until(lambda: len(before & fleet.workers()) == 1, 240, f"1 left: {log.read_text()}")
        wait_until(lambda: len(fleet.workers()) == WORKERS, 240, f"3 again: {log.read_text()}")
    finally:
        gate.touch()
    assert driver.wait(patient(280)) == 0, log.read_text()
    assert fleet.requested() == []
    found = open_study("grows", str(fleet.shared / "studies")).records()
    assert [(one.number, one.state) for one in found] == [(n, "complete") for n in range(9)]
    here("audit", "grows", "--storage", fleet.shared / "studies")
    wait_until(lambda: not fleet.workers(), 240, "the workers go")


@pytest.mark.slow
def test_after_sigterm_nothing_is_asked_for(fleet: Fleet) -> None:
    spec, _ = study(fleet, "stopped", trials=2)
    log = fleet.shared / "stopped.log"
    driver = fleet.start(log, spec)
    wait_until(lambda: len(fleet.workers()) >= 2, 240, f"workers: {log.read_text()}")
    assert fleet.requested() != []
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(patient(120)) == 75, log.read_text()
    assert fleet.requested() == []
    wait_until(lambda: not fleet.workers(), 240, "the workers go")
