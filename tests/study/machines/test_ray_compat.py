"""What is used of Ray without being public is there, and does what it is used for."""

import importlib
import inspect
import os
import signal
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest
import ray
from ray._private import ray_constants, worker
from ray._private.node import Node
from ray._raylet import InnerGcsClient
from ray.actor import ActorHandle
from ray.air._internal import usage
from ray.air.execution._internal import RayActorManager
from ray.air.execution.resources import (
    PlacementGroupResourceManager,
    ResourceManager,
    ResourceRequest,
)
from ray.autoscaler._private.util import format_readonly_node_type
from ray.autoscaler.v2.utils import is_autoscaler_v2
from ray.core.generated import common_pb2
from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError
from ray.experimental.internal_kv import _internal_kv_get
from ray.job_config import JobConfig
from ray.tune.experiment import Trial

from study.engine.deaths import death_of
from study.machines.ray_compat import (
    SERVICES,
    actor_of,
    losses_are_deaths,
    placed_off,
    uncounted_callbacks,
    without_messages,
    without_services,
    workers_import_from,
)
from tests.patience import patient

KILLED = (
    "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP:"
    " 192.0.2.2) was 3.24GB used / 4.00GB limit (0.809674)\nOOM kill reason: Memory usage"
    " 3437240320B exceeded threshold of 3435973888B"
)
LOSSES = {
    "memory": (
        OutOfMemoryError(KILLED),
        ("machine", "out of memory: Ray's memory monitor killed its process"),
    ),
    "node": (NodeDiedError("the actor's node has died"), ("node", "its node died")),
    "object": (ObjectLostError("00ff", "10.0.0.2", ""), ("process", "its process died: ")),
}


class Losing:
    """An actor whose answer is an error that Ray itself would raise for it."""


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_an_answer_that_is_lost_is_the_death_of_its_actor(loss: str) -> None:
    """Without the mend Tune ends the whole run at it: RuntimeError, Caught unexpected exception."""
    error, expected = LOSSES[loss]
    heard: list[Exception] = []
    # One of Ray's own would start a Ray in this process.
    manager = RayActorManager(resource_manager=mock.Mock(spec=ResourceManager))
    actor = manager.add_actor(
        Losing, {}, ResourceRequest([{"CPU": 1}]), on_error=lambda actor, error: heard.append(error)
    )
    manager._cleanup_actor = lambda tracked_actor: None  # it never came to live
    task = type("Task", (), {"_tracked_actor": actor, "_on_error": None})()
    with pytest.raises(RuntimeError, match="unexpected exception"):
        manager._actor_task_failed(tracked_actor_task=task, exception=error)
    with losses_are_deaths():
        manager._actor_task_failed(tracked_actor_task=task, exception=error)
    (told,) = heard
    assert isinstance(told, RayActorError) and str(told) == str(error)
    death = death_of(str(told))
    assert death.cause == expected[0] and death.reason.startswith(expected[1])


def test_what_is_private_has_the_shape_it_is_used_in() -> None:
    """A new Ray that moved or renamed any of it fails here first."""
    parameters = inspect.signature(RayActorManager._actor_task_failed).parameters
    assert list(parameters) == ["self", "tracked_actor_task", "exception"]
    # To which a GcsClient hands on what it is asked.
    assert callable(InnerGcsClient.get_all_node_info)
    assert actor_of(Trial("stub", stub=True)) is None
    assert isinstance(ActorHandle._actor_id, property)  # `actor_id_of`
    # Of `autoscaler_is_active`, which takes an error for a head that does not tell.
    assert ray_constants.DEBUG_AUTOSCALING_STATUS == "__autoscaling_status"
    assert callable(is_autoscaler_v2) and callable(_internal_kv_get)
    assert format_readonly_node_type("7d39") == "node_7d39"


# Ray gives its processes 30 s to start, too few on a busy machine.
PATIENT = """
def started(cpus):
    import ray
    keys = dict(num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    for tried in range(6):
        try:
            return ray.init(address="local", **keys)
        except Exception as error:
            if "timed out during startup" not in str(error) or tried == 5:
                raise
"""

STARTING = (
    PATIENT
    + """
import os, signal
import ray
from contextlib import nullcontext
from pathlib import Path
from benchmarks.chaos.processes import wait_for
from study.machines.ray_compat import without_its_sigterm, without_services
from study.machines.ray_session import set_environment

class Actor:
    def runs(self):
        return "an actor runs"

def titled(words=b"ray::"):
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == raylet and (process / "cmdline").read_bytes().startswith(words):
                yield (process / "environ").read_bytes()
        except OSError:
            pass  # it has ended

signal.signal(signal.SIGTERM, lambda number, frame: print("heard", flush=True))
{before}
with {services}(), {handlers}():
    started(2)
processes = ray._private.worker._global_node.all_processes
raylet = str(processes["raylet"][0].process.pid)
print(*sorted(processes))
actor = ray.remote(runtime_env={{"env_vars": {{"AS": "Tune's"}}}})(Actor).remote()
print(ray.get(actor.runs.remote()))
idle = wait_for(lambda: [*titled(b"ray::IDLE")], {seconds})
print("others" if idle else "no other")
wait_for(lambda: len([*titled()]) > 2, 120)  # the actor, and Ray's agents
overwritten = any(found.startswith(bytes(1)) for found in titled())
print("overwritten" if overwritten else "whole", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mends", "codes", "shown"),
    [
        (
            {
                "before": "set_environment()",
                "services": "without_services",
                "handlers": "without_its_sigterm",
                "seconds": 5,
            },
            [0],
            ["gcs_server raylet", "an actor runs", "no other", "whole", "heard"],
        ),
        (
            {"before": "", "services": "nullcontext", "handlers": "nullcontext", "seconds": 120},
            [15, -signal.SIGABRT],
            [
                "dashboard gcs_server log_monitor monitor raylet",
                *("an actor runs", "others", "overwritten"),
            ],
        ),
    ],
    ids=["a run's", "Ray's own"],
)
@pytest.mark.platform
def test_what_a_local_ray_starts_and_what_ends_it(
    mends: dict[str, Any], codes: list[int], shown: list[str]
) -> None:
    """It starts what a run uses. Beside a trial's worker none waits idle: those that Ray starts on
    its own take no actor of Tune's. SIGTERM is ours, and Ray's agents keep the mark by which they
    are ended.

    Else a second signal ended a run with 15, or aborted it, and about every third stopped
    run left its agents for a minute.
    """
    # A test before this one, in this process, may have set the environment already.
    environment = {
        name: value
        for name, value in os.environ.items()
        if "prestart" not in name and name != "SPT_NOENV"
    }
    script = STARTING.format(**mends)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.returncode in codes, done.stderr
    assert done.stdout.splitlines() == shown, done.stderr


def test_ray_is_as_it_was_after_it() -> None:
    known = [*(getattr(Node, name) for name in SERVICES), usage.tag_callbacks]
    with pytest.raises(ZeroDivisionError), without_services(), uncounted_callbacks():
        assert not {*known} & {*(getattr(Node, name) for name in SERVICES), usage.tag_callbacks}
        raise ZeroDivisionError
    assert [*(getattr(Node, name) for name in SERVICES), usage.tag_callbacks] == known
    starts = inspect.getsource(Node.start_head_processes) + inspect.getsource(
        Node.start_ray_processes
    )
    assert all(f"self.{name}(" in starts for name in SERVICES)


def test_a_driver_s_workers_get_the_folders_they_are_given() -> None:
    """Ray adds its own to a list, and sends what `_serialize` gives."""
    source = inspect.getsource(worker.connect)
    assert source.index("job_config._py_driver_sys_path.extend(") < source.index(
        "job_config._serialize()"
    )
    known = JobConfig._serialize
    config = JobConfig(_py_driver_sys_path=["/its/working/directory"])
    with workers_import_from(["/a/checkout"]):
        sent = common_pb2.JobConfig.FromString(config._serialize())
    assert list(sent.py_driver_sys_path) == ["/a/checkout"] and JobConfig._serialize is known


def test_what_ray_reports_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """`listen_error_messages` prints by this name, and by no other."""
    assert "print_to_stdstream(" in inspect.getsource(worker.listen_error_messages)
    known = worker.print_to_stdstream
    said = {"lines": ["a node died"], "pid": "raylet", "is_err": False}
    with without_messages():
        worker.print_to_stdstream(said, ignore_prefix=False)
    assert worker.print_to_stdstream is known and capsys.readouterr().out == ""
    worker.print_to_stdstream(said, ignore_prefix=False)
    assert "a node died" in capsys.readouterr().out


class Group:
    """A placement group that is never ready."""

    def __init__(self, bundles: Any, strategy: str, **options: Any) -> None:
        self.options = options

    def ready(self) -> object:
        return object()


def test_trials_that_wait_are_placed_anew_when_the_nodes_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removed: list[Group] = []
    there = importlib.import_module("ray.util.placement_group")  # ray.util has a function so named
    monkeypatch.setattr(there, "placement_group", Group)
    monkeypatch.setattr(ray.util, "remove_placement_group", removed.append)
    monkeypatch.setattr(ray, "cancel", lambda future: None)
    monkeypatch.setattr(ray, "wait", lambda futures, **options: ([], futures))
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    nodes = frozenset[str]()
    manager = PlacementGroupResourceManager()
    one, other = ResourceRequest([{"CPU": 1}]), ResourceRequest([{"CPU": 2}])

    def waiting() -> list[dict[str, Any]]:
        return [group.options for group in manager._pg_to_request]

    with placed_off(lambda: nodes):
        for request in (one, one, other):
            manager.request_resources(request)
        assert waiting() == [{}, {}, {}] and removed == []
        nodes = frozenset({"bb", "aa"})
        manager.update_state()
        off = {"bundle_label_selector": [{"ray.io/node-id": "!in(aa,bb)"}]}
        assert waiting() == [off, off, off] and len(removed) == 3
        assert [len(manager._request_to_staged_pgs[request]) for request in (one, other)] == [2, 1]
        manager.update_state()
        assert len(removed) == 3
        nodes = frozenset()
        manager.update_state()
        assert waiting() == [{}, {}, {}] and len(removed) == 6


LEAVING = (
    PATIENT
    + """
import os, signal, sys
from study.machines.ray_compat import leave_ray

def heard(number, frame):
    print("heard", flush=True)

import ray
from ray._private.node import Node
started(1)
signal.signal(signal.SIGTERM, heard)
known = Node.kill_all_processes

def kill_all_processes(*args, **options):
    os.kill(os.getpid(), signal.SIGTERM)  # in the midst of Ray's shutdown
    known(*args, **options)

Node.kill_all_processes = kill_all_processes
{leave}()
os.kill(os.getpid(), signal.SIGTERM)
print("left", flush=True)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leave", "code", "shown"),
    [("leave_ray", 0, ["heard", "heard", "left"]), ("ray.shutdown", -15, [])],
)
@pytest.mark.platform
def test_a_signal_while_ray_is_left_is_heard(leave: str, code: int, shown: list[str]) -> None:
    """Without the mend it ends the process: a finished study's MLflow run
    would still be RUNNING."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVING.format(leave=leave)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.splitlines()) == (code, shown), done.stderr


COLLECTS = """
import gc, sys, threading, time
import ray
from study.machines.ray_compat import leave_ray
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

class Holds:
    def __init__(self):
        self.itself, self.reference = self, ray.put(0)

def work():
    while held:
        held.pop()  # garbage, which is freed when it is collected
        [[] for _ in range(2000)]
        time.sleep(0.0005)

held = [Holds() for _ in range(6000)]
gc.set_threshold(100, 0, 0)
threading.Thread(target=work, daemon=True).start()
LEAVE()
print("left", gc.isenabled())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leave", "code", "shown"), [("leave_ray", 0, ["left True"]), ("ray.shutdown", 1, [])]
)
@pytest.mark.platform
def test_garbage_of_a_thread_does_not_end_the_process_while_ray_shuts_down(
    leave: str, code: int, shown: list[str]
) -> None:
    """As under load of the thread that writes to MLflow."""
    script = COLLECTS.replace("LEAVE", leave)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=patient(280),
    )
    assert (done.returncode, done.stdout.splitlines()) == (code, shown), done.stderr
