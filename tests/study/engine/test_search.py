"""What Ray says of a death, as it really says it, and what the search makes of it."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError

from study.engine.deaths import Death, Killings, death_of
from study.engine.live import Live
from study.engine.queue import Group
from study.engine.search import OVERDUE_SECONDS, LedgerSearch
from study.machines.nodes import DATA_PATIENCE
from study.schema.resources import Resources
from study.store.trials import TrialRecord
from trainables.outputs.outcome import Report, reports_to_json


def record(number: int = 0, **words: Any) -> TrialRecord:
    return TrialRecord("focal", number, words.pop("state", "running"), {}, **words)


def live_of(*records: TrialRecord) -> Live:
    stack = records[0].name if len(records) > 1 else None
    return Live(Group(records, stack), 1, Resources())


def test_an_actor_whose_raylet_is_gone_died_with_its_node() -> None:
    """Ray says this first, and only once the node has missed its heartbeats that it is dead."""
    said = "The actor is temporarily unavailable: RpcError: RPC error: Socket closed rpc_code: 14"
    assert death_of(str(ActorUnavailableError(said, None))) == Death(
        "node", "its node could not be reached"
    )


def test_who_dies_after_a_stop_was_requested_is_not_blamed() -> None:
    """A preemption ends the workers too, at the same moment: after three of them
    the trial would have failed."""
    asked: list[str] = []
    search = LedgerSearch.__new__(LedgerSearch)
    search.fault, search._live = None, {"0": live_of(record())}
    search._stop_requested = lambda: not asked.append("stop?")
    search.attempt_died("0", "The actor is dead because its worker process has died. SYSTEM_ERROR")
    outcome = {"state": "interrupted", "reason": "SystemExit"}
    told = {"focal/0000": {"rows": [], "outcome": outcome}}
    search.on_trial_complete("0", {"reports": json.dumps(told)})
    assert search.fault is None and asked == ["stop?", "stop?"]
    search._live = {}
    assert search.suggest("1") == "FINISHED"  # None would be waited for


@pytest.mark.parametrize("in_new_process", [True, False])
def test_the_time_in_which_a_node_prepares_its_data_is_no_trials(
    monkeypatch: pytest.MonkeyPatch, in_new_process: bool
) -> None:
    """With trial_minutes: 0.1 a node that joins late would never train: its first trial would have
    been taken for one that hangs."""
    now = [0.0]
    search: Any = LedgerSearch.__new__(LedgerSearch)
    monkeypatch.setattr("study.engine.search.time", SimpleNamespace(monotonic=lambda: now[0]))
    search.fault, search._listeners, search._limit = None, [], 6.0
    search._killings = Killings()
    search._next_look = -math.inf
    search._nodes = SimpleNamespace(trained=lambda: None)
    search._live = {"0": live_of(record())}
    search.attempt_started("0", in_new_process)
    now[0] += DATA_PATIENCE - 1
    assert search.overdue() == ([] if in_new_process else ["0"])
    if in_new_process:
        search.on_trial_result(
            "0", {"reports": reports_to_json({"focal/0000": Report([])})}
        )  # the data are there
        now[0] += 6 + OVERDUE_SECONDS - 1
        assert search.overdue() == []
        now[0] += 2
        assert search.overdue() == ["0"]


def test_trials_that_hang_are_looked_for_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each event a look at a thousand trials would cost more than the event."""
    looks: list[float] = []

    class Live(dict[str, Any]):
        def items(self) -> Any:
            looks.append(now)
            return super().items()

    now = 1000.0
    search = LedgerSearch.__new__(LedgerSearch)
    monkeypatch.setattr("study.engine.search.time", SimpleNamespace(monotonic=lambda: now))
    search._limit = 60.0
    search._next_look = -math.inf
    silent = live_of(record())
    silent.last_seen = 1000.0
    search._live = Live(silent=silent)
    found = []
    for event in range(1500):  # ten a second
        now = 1000.0 + event / 10
        found += [(trial, now) for trial in search.overdue()]
    assert 120 <= len(looks) <= 150
    # A minute that it may train, and a minute for its process to start.
    assert [(trial, int(when)) for trial, when in found] in ([("silent", 1120)], [("silent", 1121)])


def test_who_waits_is_told_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[bool, float]] = []
    now = 1000.0
    search: Any = LedgerSearch.__new__(LedgerSearch)
    monkeypatch.setattr("study.engine.search.time", SimpleNamespace(monotonic=lambda: now))
    search._nodes = SimpleNamespace(look=lambda: None)
    search._ask, search._asked, search._next_following = None, 0.0, -math.inf
    search._follow = lambda waits, heard: told.append((waits, heard))
    waits, trains = live_of(record()), live_of(record())
    for search._live in ({}, {"0": waits}, {"0": waits, "1": trains}):
        for _ in range(20):  # ten a second
            now += 0.1
            trains.last_seen = 7.0
            search.look()
    assert set(told) == {(False, -math.inf), (True, -math.inf), (False, 7.0)}
    assert len(told) <= 7
