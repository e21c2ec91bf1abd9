"""Every use of Ray's private API, with its reason. A test fails if a new Ray changes it."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SERVICES = ("start_monitor", "start_log_monitor", "start_api_server")  # methods of Ray's Node
FULL = "calstudy-full-"  # the beginning of keys in Ray's store, of jobs and their processes
NEEDED = {"gcs_server": "control store", "raylet": "raylet"}  # its processes, by their names there


@contextmanager
def losses_are_deaths() -> Iterator[None]:
    """Make Tune treat every Ray error of an actor task as the death of that actor.

    Tune handles RayActorError and RayTaskError, but any other error ends the whole run with all its
    trials (ray/air/execution/_internal/actor_manager.py:290): the OutOfMemoryError of Ray's memory
    monitor, objects lost with a node.
    """
    from ray.air.execution._internal import RayActorManager
    from ray.exceptions import RayActorError, RayError, RayTaskError

    known: Any = RayActorManager._actor_task_failed

    def failed(manager: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, RayError) and not isinstance(
            exception, RayActorError | RayTaskError
        ):
            exception = RayActorError(error_msg=str(exception))
        known(manager, tracked_actor_task, exception)

    with _replaced(RayActorManager, {"_actor_task_failed": failed}):
        yield


@contextmanager
def without_messages() -> Iterator[None]:
    """Keep what Ray's processes report, in colours and with tracebacks, out of the terminal: the
    deaths of trials and nodes are told in our words.

    Ray prints their reports whatever `log_to_driver` says (ray/_private/worker.py:2482).
    """
    from ray._private import worker

    with _replaced(worker, {"print_to_stdstream": lambda data, ignore_prefix: None}):
        yield


@contextmanager
def placed_off(nodes: Callable[[], frozenset[str]]) -> Iterator[None]:
    """Keep Tune's trials off these nodes, by their ids. Those that wait for a place are asked for
    anew when the nodes change.

    A placement group keeps the nodes that it was made for, and Tune makes those of trials that
    wait in advance; it has no way to take them back.
    """
    from ray.air.execution.resources.placement_group import PlacementGroupResourceManager
    from ray.air.execution.resources.request import ResourceRequest
    from ray.util.placement_group import placement_group

    known: Any = PlacementGroupResourceManager.update_state
    made_for = nodes()

    def to_placement_group(request: Any) -> Any:
        bound = request._bound
        return placement_group(*bound.args, **bound.kwargs, **label_selector(nodes()))

    def update_state(manager: Any) -> None:
        nonlocal made_for
        if nodes() != made_for:
            made_for = nodes()
            staged = manager._request_to_staged_pgs.items()
            waiting = [request for request, groups in staged for _ in groups]
            for request in waiting:
                manager.cancel_resource_request(request)
            for request in waiting:
                manager.request_resources(request)
        known(manager)

    with (
        _replaced(ResourceRequest, {"to_placement_group": to_placement_group}),
        _replaced(PlacementGroupResourceManager, {"update_state": update_state}),
    ):
        yield


def label_selector(nodes: Collection[str]) -> dict[str, list[dict[str, str]]]:
    """The argument of `placement_group` that keeps one bundle off these nodes, by their ids."""
    if not nodes:
        return {}
    return {"bundle_label_selector": [{"ray.io/node-id": f"!in({','.join(sorted(nodes))})"}]}


def leave_client_mode() -> bool:
    """Whether RAY_CLIENT_MODE asks for Ray Client; it is off from now on.

    Ray reads the variable as it is imported (ray/_private/client_mode_hook.py), and sets it to 0.
    """
    from ray._private import client_mode_hook

    hook: Any = client_mode_hook
    asked = bool(hook.is_client_mode_enabled)
    hook._explicitly_disable_client_mode()
    hook.is_client_mode_enabled_by_default = False
    return asked


@contextmanager
def without_services() -> Iterator[None]:
    """Start Ray without what nobody asks here: an autoscaler, a collector of logs, and the
    dashboard's server.

    Ray has no option for it. Without a dashboard that server still runs, for usage statistics
    alone, and Ray waits for it before it starts anything else (ray/_private/services.py,
    `start_api_server`): half of the time of `ray.init`.
    """
    from ray._private.node import Node

    with _replaced(Node, {name: lambda node, **options: None for name in SERVICES}):
        yield


@contextmanager
def workers_import_from(folders: list[str]) -> Iterator[None]:
    """Put these folders first on the path of a driver's workers, instead of its script's and its
    working directory.

    Ray has no option for it (ray/_private/worker.py:2687).
    """
    from ray.job_config import JobConfig

    known = JobConfig._serialize

    def serialize(config: Any) -> Any:
        config._py_driver_sys_path = folders
        return known(config)

    with _replaced(JobConfig, {"_serialize": serialize}):
        yield


@contextmanager
def without_its_sigterm() -> Iterator[None]:
    """Join Ray with Python's handler of SIGTERM kept, if there is one.

    Ray installs its own when it starts a node and when it connects, which exits with code 15
    (ray/_private/node.py:644, ray/_private/worker.py:1675). Its C++ code installs one that calls
    Python's, and aborts the process three seconds later by an alarm (Abseil's failure handler).
    """
    from ray._private import utils

    known: Any = utils.set_sigterm_handler

    def install(handler: Any) -> None:
        if not callable(signal.getsignal(signal.SIGTERM)):
            known(handler)

    try:
        with _replaced(utils, {"set_sigterm_handler": install}):
            yield
    finally:
        _install_handlers_again()


@contextmanager
def uncounted_callbacks() -> Iterator[None]:
    """Tune counts callbacks by kind for usage statistics, which are off, and imports MLflow to know
    its own."""
    from ray.air._internal import usage

    with _replaced(usage, {"tag_callbacks": lambda callbacks: False}):
        yield


@contextmanager
def _replaced(owner: Any, new: dict[str, Callable[..., Any]]) -> Iterator[None]:
    known = {name: getattr(owner, name) for name in new}
    for name, function in new.items():
        setattr(owner, name, function)
    try:
        yield
    finally:
        for name, function in known.items():
            setattr(owner, name, function)


def leave_ray() -> None:
    """`ray.shutdown()`, but the handlers of Python keep their signals.

    Ray's C++ code gives SIGTERM its default effect when the driver disconnects
    (ray/_private/worker.py:2144), a second before `shutdown` returns: the process would die on the
    spot.
    """
    import ray
    from ray._private import worker

    node: Any = worker._global_node
    if node is not None:
        known = node.kill_all_processes

        def kill_all_processes(*args: Any, **options: Any) -> None:  # the next that `shutdown` does
            _install_handlers_again()
            known(*args, **options)

        node.kill_all_processes = kill_all_processes
    with _without_collection():
        ray.shutdown()
    _install_handlers_again()


@contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage is collected: a thread that frees one of Ray's references while Ray shuts down
    ends the process, without a word of Python's (src/ray/core_worker/core_worker_process.cc)."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _install_handlers_again() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(handler := signal.getsignal(number)):
                signal.signal(number, handler)


def actor_of(trial: Any) -> Any:
    """The actor in which Tune trains a trial, to kill one that hangs."""
    return trial.temporary_state.ray_actor


def actor_id_of(trial: Any) -> str:
    """The id of that actor, the same for all trials that one trains."""
    return str(actor_of(trial)._actor_id.hex())


def head_question(address: str) -> Callable[[float], None]:
    """Asks the head at HOST:PORT for its nodes, in as many seconds as it is given; raises Ray's
    errors. `ray.init` would wait for minutes.

    Over one connection: another cluster there does not answer it.
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    clients: list[Any] = []

    def ask(seconds: float) -> None:
        if not clients:
            clients.append(GcsClient(address))
        clients[0].get_all_node_info(timeout=seconds)

    return ask


def autoscaler_is_active() -> bool | None:
    """Whether an autoscaler adds nodes to the joined cluster; None: Ray does not tell.

    Each head runs one. Without a configuration it only watches, and names a type of node after
    each node (ray/autoscaler/_private/util.py:986); its second version gives none a type.
    """
    from ray._private import ray_constants
    from ray.autoscaler.v2.utils import is_autoscaler_v2
    from ray.experimental.internal_kv import _internal_kv_get

    try:
        if is_autoscaler_v2():
            return True if any(_types_of_nodes()) else None
        status = json.loads(_internal_kv_get(ray_constants.DEBUG_AUTOSCALING_STATUS) or b"{}")
        report = status.get("autoscaler_report") or {}
        types = {*report.get("active_nodes", {}), *report.get("pending_launches", {})}
        types |= {kind for _, kind, _ in report.get("pending_nodes", [])}
    except Exception:  # a head of another version, or one that does not answer just now
        return None
    return any(not re.fullmatch("node_[0-9a-f]+", kind) for kind in types) if types else None


def _types_of_nodes() -> list[str]:
    """The types that the second version of the autoscaler knows its nodes by; empty: none."""
    from ray._private import worker
    from ray.core.generated import autoscaler_pb2

    joined: Any = worker.global_worker
    client = joined.gcs_client
    messages: Any = autoscaler_pb2
    reply = messages.GetClusterStatusReply()
    reply.ParseFromString(client.get_cluster_status(timeout_s=10))
    there = [node.ray_node_type_name for node in reply.cluster_resource_state.node_states]
    pending = reply.autoscaling_state
    coming = [*pending.pending_instances, *pending.pending_instance_requests]
    return [*there, *(each.ray_node_type_name for each in coming)]


@dataclass(frozen=True)
class Holding:
    """What a job of the joined cluster holds of a node, in Ray's names: by an actor, or a placement
    group. job, node: ids."""

    job: str
    node: str
    resources: dict[str, float]


def own_job() -> str:
    """The id of our job, as `Holding` has it."""
    import ray

    return str(ray.get_runtime_context().get_job_id())


def free_resources() -> dict[str, dict[str, float]]:
    """By node id what no job holds. Ray's public function sums all nodes."""
    from ray._private import state

    known: Any = state.state
    free: dict[str, dict[str, float]] = known.available_resources_per_node()
    return free


def holdings() -> list[Holding]:
    """What actors and placement groups hold; Ray tells of no task without a dashboard."""
    from ray._private import state
    from ray.core.generated import gcs_pb2

    known: Any = state.state
    messages: Any = gcs_pb2
    accessor = known._connect_and_get_accessor()
    found = []
    for actor in map(messages.ActorTableData.FromString, accessor.get_actor_table(None, "ALIVE")):
        held = dict(actor.required_resources)
        found.append(Holding(actor.job_id.hex(), actor.address.node_id.hex(), held))
    groups = accessor.get_placement_group_table()
    for group in map(messages.PlacementGroupTableData.FromString, groups):
        if group.state == messages.PlacementGroupTableData.CREATED:
            job = group.creator_job_id.hex()
            for bundle in group.bundles:
                held = dict(bundle.unit_resources)
                found.append(Holding(job, bundle.node_id.hex(), held))
    return found


def other_jobs() -> dict[str, str]:
    """The jobs that run beside ours, by id: `python hog.py, process 188 on 10.0.0.1`.

    A command's further words are left out: they may hold a password.
    """
    from ray._private import state
    from ray.core.generated import gcs_pb2

    known: Any = state.state
    messages: Any = gcs_pb2
    table = known._connect_and_get_accessor().get_job_table(
        skip_submission_job_info_field=True, skip_is_running_tasks_field=True
    )
    own = own_job()
    found = {}
    for job in map(messages.JobTableData.FromString, table):
        if job.is_dead or job.job_id.hex() == own:
            continue
        if not job.config.ray_namespace.startswith("_ray_internal"):
            command = re.match(r"\S+(?: -m \S+| [^\s-]\S*)?", job.entrypoint)
            words = f"{command[0]}, " if command else ""
            place = job.driver_address.ip_address
            found[job.job_id.hex()] = f"{words}process {job.driver_pid} on {place}"
    return found


def tell_full(line: str | None) -> None:
    """Tell the driver, from a worker, that a write waits for space: where, and the line; None: it
    goes on.

    A worker's own output reaches nobody, and its next report may be ten minutes away. Ray's store
    of keys and values is the only way past a method that does not end.
    """
    import ray
    from ray.experimental import internal_kv

    store: Any = internal_kv
    node = ray.get_runtime_context().get_node_id()
    key = f"{FULL}{own_job()}-{node}-{os.getpid()}".encode()
    if line is None:
        store._internal_kv_del(key)
    else:
        told = json.dumps([f"{socket.gethostname()}: {line}", time.time()])
        store._internal_kv_put(key, told.encode())


def told_full() -> dict[str, str]:
    """What workers of our job tell of full disks: a line and the time, as JSON, by worker."""
    from ray.experimental import internal_kv

    store: Any = internal_kv
    found = {}
    for key in store._internal_kv_list(f"{FULL}{own_job()}".encode()):
        if (value := store._internal_kv_get(key)) is not None:
            found[key.decode()] = value.decode()
    return found


def lost_services() -> list[str]:
    """What has ended of the processes that a Ray on this machine alone cannot do without."""
    from ray._private import worker

    node: Any = worker._global_node
    dead = [] if node is None else [name for name, _ in node.dead_processes()]
    return [shown for name, shown in NEEDED.items() if name in dead]
