"""All that is not public in Ray and used all the same, each with why. A test fails where a new Ray has changed it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# What tells of each upload on the terminal; Ray has no option against it.
UPLOAD_LOGGERS = ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging")


@contextmanager
def losses_are_deaths() -> Iterator[None]:
    """Have Tune take every way in which Ray loses an actor's answer as that actor's death.

    It knows RayActorError and RayTaskError and ends the whole run at any other, all trials with it
    (ray/air/execution/_internal/actor_manager.py:290): at the OutOfMemoryError of Ray's memory monitor, at what is lost
    with a node.
    """
    from ray.air.execution._internal import RayActorManager
    from ray.exceptions import RayActorError, RayError, RayTaskError

    managers: Any = RayActorManager
    known = managers._actor_task_failed

    def failed(manager: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, RayError) and not isinstance(exception, RayActorError | RayTaskError):
            exception = RayActorError(error_msg=str(exception))
        known(manager, tracked_actor_task, exception)

    managers._actor_task_failed = failed
    try:
        yield
    finally:
        managers._actor_task_failed = known


def actor_of(trial: Any) -> Any:
    """The actor in which Tune trains a trial: what hangs can be ended in no other way."""
    return trial.temporary_state.ray_actor


def ask_head(address: str, seconds: float) -> None:
    """Ask the head at HOST:PORT for its nodes; raises what Ray raises. `ray.init` would wait for minutes."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    GcsClient(address).get_all_node_info(timeout=seconds)


def job_client(address: str, seconds: float) -> Any:
    """Ray's job client with a limit to each request; its own waits for ever."""
    from ray.job_submission import JobSubmissionClient

    class Client(JobSubmissionClient):
        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            return super()._do_request(method, endpoint, **{"timeout": seconds, **options})

    return Client(address)
