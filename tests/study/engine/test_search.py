"""What Ray says of a death, as it really says it, and what the search makes of it."""

import json

from ray.exceptions import ActorUnavailableError

from study.engine.search import LedgerSearch, cause_of_death


def test_an_actor_whose_raylet_is_gone_died_with_its_node() -> None:
    """Ray says this first, and only once the node has missed its heartbeats that it is dead."""
    said = "The actor is temporarily unavailable: RpcError: RPC error: Socket closed rpc_code: 14"
    assert cause_of_death(str(ActorUnavailableError(said, None))) == (
        "node",
        "its node could not be reached",
    )


def test_who_dies_after_a_stop_was_requested_is_not_blamed() -> None:
    """A preemption ends the workers too, at the same moment: after three of them
    the trial would have failed."""
    asked: list[str] = []
    search = LedgerSearch.__new__(LedgerSearch)
    search.fault, search._live = None, {}
    search._stop_requested = lambda: not asked.append("stop?")
    search.attempt_died("0", "The actor is dead because its worker process has died. SYSTEM_ERROR")
    outcome = {"state": "interrupted", "reason": "SystemExit"}
    search.on_trial_complete("0", {"report": json.dumps({"rows": [], "outcome": outcome})})
    assert search.fault is None and asked == ["stop?", "stop?"]
    assert search.suggest("1") == "FINISHED"  # None would be waited for
