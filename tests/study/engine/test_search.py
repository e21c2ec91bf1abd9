"""What Ray says of a death, as it really says it, and what the search makes of it."""

import json

import pytest
from ray.air.execution._internal import RayActorManager
from ray.air.execution.resources import FixedResourceManager, ResourceRequest
from ray.exceptions import ActorUnavailableError, NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError

from study.engine.ray_session import ClusterError
from study.engine.search import LedgerSearch, cause_of_death, losses_are_deaths

KILLED = (
    "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 192.0.2.2) was 3.24GB used"
    " / 4.00GB limit (0.809674)\nOOM kill reason: Memory usage 3437240320B exceeded threshold of 3435973888B"
)
LOSSES = {
    "memory": (OutOfMemoryError(KILLED), ("process", "out of memory: Ray's memory monitor ended its process")),
    "node": (NodeDiedError("the actor's node has died"), ("node", "its node died")),
    "object": (ObjectLostError("00ff", "10.0.0.2", ""), ("process", "its process died: ")),
}


class Losing:
    """An actor whose answer is an error that Ray itself would raise for it."""


@pytest.mark.parametrize("loss", LOSSES)
def test_an_answer_that_is_lost_is_the_death_of_its_actor(loss: str) -> None:
    """Without the mend Tune ends the whole run at it: RuntimeError, Caught unexpected exception."""
    error, expected = LOSSES[loss]
    heard: list[Exception] = []
    manager = RayActorManager(resource_manager=FixedResourceManager({"CPU": 1}))
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
    cause, reason = cause_of_death(str(told))
    assert cause == expected[0] and reason.startswith(expected[1])


def test_an_actor_whose_raylet_is_gone_died_with_its_node() -> None:
    """Ray says this first, and only once the node has missed its heartbeats that it is dead."""
    said = "The actor is temporarily unavailable: RpcError: RPC error: Socket closed rpc_code: 14"
    assert cause_of_death(str(ActorUnavailableError(said, None))) == ("node", "its node could not be reached")


def test_a_node_that_does_not_see_the_storage_ends_the_run_in_one_line() -> None:
    """Each trial it were given would be lost there; as it is, the next run takes this one up again."""
    search = LedgerSearch.__new__(LedgerSearch)
    search.fault = None
    outcome = {"state": "storage_unseen", "reason": "node gpu-7 does not see /srv/digits/study.yaml"}
    search.on_trial_complete("0", {"report": json.dumps({"rows": [], "outcome": outcome})})
    assert isinstance(search.fault, ClusterError)
    assert str(search.fault).startswith("node gpu-7 does not see /srv/digits/study.yaml. Mount the storage there")
