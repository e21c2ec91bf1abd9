"""Which trials form a stack, and what becomes of it: a search without Ray or training."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from study.engine.budget import Spending
from study.engine.search import OVERDUE_SECONDS, LedgerSearch
from study.machines.guarded import Unfit
from study.schema.reading import spec_from_mapping
from study.store.ledger import Ledger, open_storage
from study.store.recorded import Stacked
from study.store.study import StudyFolder, open_directory
from study.store.trials import Listener, TrialRecord
from tests.study.made import Places, made_study

RANDOM = {"name": "random"}
DIED = "The actor is dead because its worker process has died."
COMPLETE = {"state": "complete", "metrics": {"accuracy": 0.8, "ece": 0.1}}


class Heard(Listener):
    """Which events there were of which trials."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def handed_out(self, record: TrialRecord) -> None:
        self.events.append(("handed out", record.name))

    def stopped(self, record: TrialRecord) -> None:
        self.events.append(("stopped", record.name))

    def finished(self, record: TrialRecord) -> None:
        self.events.append(("finished", record.name))


class Driven:
    """A study with stacks of so many trials, driven by hand; `driver` begins anew."""

    def __init__(self, root: Path, rows: int, slots: int = 1, **keys: Any) -> None:
        plain = {
            "name": "small",
            "data": "digits",
            "model": "mlp",
            "methods": ["focal", "mbls"],
            "search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}},
            "sampler": RANDOM,
            **keys,
        }
        spec = spec_from_mapping(plain, "small.yaml")
        labels: dict[str, list[Any]] = {one.label: [] for one in spec.variants}
        directory = made_study(root, "small", labels, planned=spec.trials).directory
        recorded = open_directory(directory, "small").recorded
        recorded = replace(recorded, majority=0.1, stack=Stacked(rows, "cpu"))
        self.study = StudyFolder.of(directory, spec, recorded)
        self.slots = slots
        self.heard = Heard()
        self.driver()

    def driver(self, *listeners: Listener) -> None:
        self.ledger = Ledger(open_storage(self.study.directory, None), "small", "small")
        for label in self.study.labels:
            self.ledger.open(label, self.study.objectives)
        self.search = LedgerSearch(
            self.study, self.ledger, [self.heard, *listeners], Places(self.slots)
        )
        self.ids = 0

    def next(self) -> tuple[str, dict[str, Any]]:
        """Ray's id of what is handed out now, and its assignment."""
        self.ids += 1
        given = self.search.suggest(f"t{self.ids}")
        assert self.search.fault is None and isinstance(given, Mapping), given
        return f"t{self.ids}", json.loads(given["assignment"])

    def ends(self, trial_id: str, told: Mapping[str, Any]) -> None:
        reports = {name: {"rows": [], "outcome": one} for name, one in told.items()}
        self.search.on_trial_complete(trial_id, {"reports": json.dumps(reports)})
        assert self.search.fault is None

    def reports(self, trial_id: str, told: Mapping[str, Any]) -> None:
        reports = {name: {"rows": [], "outcome": one} for name, one in told.items()}
        self.search.on_trial_result(trial_id, {"reports": json.dumps(reports)})
        assert self.search.fault is None

    def all_of(self) -> list[list[str]]:
        """The trials of each that is handed out, until none is left; each ends at once."""
        found = []
        while isinstance(given := self.search.suggest("all"), Mapping):
            found.append(trials_of(json.loads(given["assignment"])))
            self.ends("all", dict.fromkeys(found[-1], COMPLETE))
        assert self.search.fault is None
        return found

    def planned(self) -> dict[str, tuple[Any, ...]]:
        return {one.name: (one.params, one.stack) for one in self.ledger.trials()}


def trials_of(assignment: Mapping[str, Any]) -> list[str]:
    """Those that it trains."""
    return [one["trial"] for one in assignment.get("rows", [assignment])]


def numbers(first: int, end: int, *labels: str) -> list[str]:
    names = []
    for label in labels or ("focal", "mbls"):
        names += [f"{label}/{number:04d}" for number in range(first, end)]
    return names


def test_a_stack_takes_as_many_of_every_method(tmp_path: Path) -> None:
    """Of twenty rows each of two methods has ten; the last stack has what is left."""
    driven = Driven(tmp_path, rows=20, trials=24)
    trial_id, first = driven.next()
    assert trials_of(first) == numbers(0, 10)
    assert {row["stack"] for row in first["rows"]} == {"focal/0000, 20 trials"}
    recorded = {one.name: one for one in driven.ledger.trials()}
    assert list(recorded) == numbers(0, 10)  # before they start
    assert {one.stack for one in recorded.values()} == {"focal/0000"}
    assert {one.attempt for one in recorded.values()} == {1}
    assert recorded["focal/0000"].together == tuple(numbers(0, 10))
    driven.ends(trial_id, dict.fromkeys(numbers(0, 10), COMPLETE))
    assert driven.all_of() == [numbers(10, 20), numbers(20, 24)]
    assert driven.search.suggest("after") == "FINISHED"
    events = [name for event, name in driven.heard.events if event == "finished"]
    assert sorted(events) == sorted(numbers(0, 24))


def test_few_rows_are_of_one_method(tmp_path: Path) -> None:
    """Eight of one method cost less than four each of two, whose losses are computed apart."""
    driven = Driven(tmp_path, rows=8, trials=10)
    first = [numbers(0, 8, label) for label in ("focal", "mbls")]
    assert driven.all_of() == first + [numbers(8, 10, label) for label in ("focal", "mbls")]


def test_what_waits_for_results_leaves_its_place_empty(tmp_path: Path) -> None:
    """focal begins with 4 trials without results, mbls with 6; then 3 proposals may wait, so that
    a stack has three trials."""
    driven = Driven(tmp_path, 8, 9, trials=12, sampler={"name": "tpe", "pending": 3})
    assert trials_of(driven.next()[1]) == numbers(0, 3)
    assert trials_of(driven.next()[1]) == numbers(3, 6)
    # Of focal 4 and 5 wait: one more may. mbls fills its places, and goes first.
    assert trials_of(driven.next()[1]) == numbers(6, 9, "mbls")
    _, alone = driven.next()
    assert alone["trial"] == "focal/0006" and alone["stack"] is None
    assert driven.ledger.record("focal", 6).stack is None
    assert driven.search.suggest("none") is None
    driven.ends("t2", dict.fromkeys(numbers(3, 6), COMPLETE))
    assert trials_of(driven.next()[1]) == numbers(7, 9, "focal")


def test_tune_sees_the_method_and_its_searched_values(tmp_path: Path) -> None:
    driven = Driven(tmp_path, rows=4, trials=6, methods=["focal", "gamma_net"])
    seen: dict[str, Any] = {}
    while isinstance(given := driven.search.suggest("t"), Mapping):
        given = dict(given)
        trials = trials_of(json.loads(given.pop("assignment")))
        if len(trials) > 1:
            assert given.pop("stack") == trials[0]
            seen |= given.pop("trials")
        else:
            name = given.pop("trial")
            seen[name], given = given, {}
        assert given == {}
        driven.ends("t", dict.fromkeys(trials, COMPLETE))
    for one in driven.ledger.trials():
        assert seen[one.name] == {"method": one.label, **one.params}
    assert len(seen) == 12 and any("method.gamma" in each for each in seen.values())


def test_methods_go_on_together(tmp_path: Path) -> None:
    """focal waits for results from its fifth trial on, mbls from its seventh. With one slot, a
    stack is asked in advance only if it is whole: mbls alone would be ahead for good."""
    driven = Driven(tmp_path, 4, 1, trials=12, sampler={"name": "tpe", "pending": 2})
    handed_out = []
    while isinstance(given := driven.search.suggest("t"), Mapping):
        handed_out.append(trials_of(json.loads(given["assignment"])))
        ahead = driven.search.suggest("ahead")
        found = [] if ahead is None else trials_of(json.loads(ahead["assignment"]))
        assert len(found) in (0, 4)
        driven.ends("t", dict.fromkeys(handed_out[-1], COMPLETE))
        if found:
            handed_out.append(found)
            driven.ends("ahead", dict.fromkeys(found, COMPLETE))
    assert handed_out == [numbers(first, first + 2) for first in range(0, 12, 2)]


def test_who_cannot_be_stacked_is_asked_in_turn(tmp_path: Path) -> None:
    three = ["focal", "gamma_net", "mbls"]
    driven = Driven(
        tmp_path, rows=4, trials=6, methods=three, sampler={"name": "tpe", "pending": 2}
    )
    expected: list[list[str]] = []
    for first in (0, 2, 4):
        expected += [
            numbers(first, first + 2),
            *([one] for one in numbers(first, first + 2, "gamma_net")),
        ]
    assert driven.all_of() == expected


def test_a_stack_has_equals_alone(tmp_path: Path) -> None:
    """Of eight trials asked together those of one batch size form a stack."""
    sizes: dict[str, Any] = {"batch_size": {"choices": [32, 64, 128, 256]}}
    driven = Driven(tmp_path, rows=8, trials=4, search_space=sizes, sampler={**RANDOM, "seed": 3})
    handed_out = driven.all_of()
    records = {one.name: one for one in driven.ledger.trials()}
    by_size: dict[Any, list[str]] = {}
    for name in numbers(0, 4):
        by_size.setdefault(records[name].params["batch_size"], []).append(name)
    assert sorted(handed_out) == sorted(by_size.values()) and len(by_size) > 1
    for names in handed_out:
        stack = names[0] if len(names) > 1 else None
        assert {records[name].stack for name in names} == {stack}


class Killed(BaseException):
    """As SIGKILL ends a process."""


@pytest.mark.parametrize("before", range(1, 9))
def test_a_kill_while_a_stack_is_asked_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    keys: dict[str, Any] = {
        "trials": 6,
        "sampler": {"name": "tpe", "pending": 4},
        "search_space": {"batch_size": {"choices": [32, 64]}},
    }
    whole = Driven(tmp_path / "whole", 8, **keys)
    groups = whole.all_of()
    driven = Driven(tmp_path / "killed", 8, **keys)
    add, count = Ledger.add, [0]

    def dies(ledger: Ledger, *words: Any, **facts: Any) -> TrialRecord:
        count[0] += 1
        if count[0] == before:
            raise Killed
        return add(ledger, *words, **facts)

    monkeypatch.setattr(Ledger, "add", dies)
    with pytest.raises(Killed):
        driven.search.suggest("t")
    assert len(driven.ledger.trials()) == before - 1
    driven.driver()
    assert driven.all_of() == groups
    assert driven.planned() == whole.planned()


def test_a_row_that_ends_is_told_at_once_and_trains_again_with_its_stack(tmp_path: Path) -> None:
    driven = Driven(tmp_path, rows=6, trials=3)
    names = numbers(0, 3)
    stack, _ = driven.next()
    diverged = {"state": "failed", "reason": "loss is nan at epoch 1"}
    driven.search.attempt_started(stack)
    driven.reports(stack, {**dict.fromkeys(names), "mbls/0000": diverged})
    assert driven.ledger.record("mbls", 0).state == "failed"
    driven.search.attempt_died(stack, DIED)
    _, again = driven.next()
    assert trials_of(again) == names and {row["attempt"] for row in again["rows"]} == {2}
    assert [row["trial"] for row in again["rows"] if row["ended"]] == ["mbls/0000"]
    assert ("stopped", "mbls/0000") not in driven.heard.events
    driven.driver()  # killed: the next one goes on with the same
    stack, third = driven.next()
    assert {row["attempt"] for row in third["rows"]} == {3}
    assert [{**row, "attempt": 2} for row in third["rows"]] == again["rows"]
    left = [name for name in names if name != "mbls/0000"]
    driven.ends(stack, dict.fromkeys(left, COMPLETE))
    found = driven.ledger.record("mbls", 0)
    assert (found.reason, found.attempt) == (diverged["reason"], 1)
    assert driven.search.suggest("after") == "FINISHED"


@pytest.mark.parametrize("cause", ["process", "out_of_memory", "interrupted", "hanging", "node"])
def test_a_stack_is_tried_again_as_the_same_one_then_its_trials_train_alone(
    tmp_path: Path, cause: str
) -> None:
    driven = Driven(tmp_path, rows=4, trials=2, slots=4, trial_minutes=1)
    names = numbers(0, 2)
    for time_ in (1, 2):
        stack, given = driven.next()
        assert {row["attempt"] for row in given["rows"]} == {time_} and trials_of(given) == names
        driven.search.attempt_started(stack)
        if cause in ("out_of_memory", "interrupted"):
            ended = {"state": cause, "reason": "OSError"}
            driven.ends(stack, dict.fromkeys(names, ended))
            continue
        if cause == "hanging":  # silent for longer than its four trials may be together
            patience = 4 * (60 + OVERDUE_SECONDS)
            live = driven.search._live[stack]
            live.last_seen = time.monotonic() - patience + 5
            assert driven.search.overdue() == []
            driven.search._next_look = live.last_seen = time.monotonic() - patience - 5
            assert driven.search.overdue() == [stack]
        driven.search.attempt_died(stack, "its node has died" if cause == "node" else DIED)
        assert driven.search.fault is None
    assert {str(one.deaths) for one in driven.ledger.trials()} == {"{'stack': 2}"}
    driven.driver()  # also after a kill
    for name in names:
        trial_id, given = driven.next()
        assert given["trial"] == name and given["attempt"] == 3
        assert given["stack"] == "left focal/0000, which died"
        driven.search.attempt_died(trial_id, DIED)
    deaths = {str(one.deaths) for one in driven.ledger.trials()}
    assert deaths == {"{'stack': 2, 'process': 1}"}
    assert driven.all_of() == [[name] for name in names]


def test_a_node_that_does_not_fit_is_no_death(tmp_path: Path) -> None:
    driven = Driven(tmp_path, rows=4, trials=2)
    stack, _ = driven.next()
    unfit = json.dumps({"node": "7d39", "because": "does not see /srv"})
    driven.search.attempt_died(stack, f"study.machines.guarded.NodeUnfit: {unfit}\n")
    assert driven.search._nodes.unfit == [Unfit("7d39", "does not see /srv")]  # type: ignore[attr-defined]
    _, again = driven.next()
    assert trials_of(again) == numbers(0, 2)
    assert {str(one.deaths) for one in driven.ledger.trials()} == {"{}"}


def test_a_stack_that_an_earlier_version_has_half_asked_is_completed(tmp_path: Path) -> None:
    """It took turns with the methods."""
    driven = Driven(tmp_path, rows=4, trials=2)
    together = ["focal/0000", "mbls/0000", "focal/0001", "mbls/0001"]
    for name in together[:3]:
        label, number = name.split("/")
        facts = {"together": together} if name == together[0] else {}
        space = driven.study.spec.variant(label).space.distributions
        params = {path: each.low for path, each in space.items()}  # type: ignore[attr-defined]
        added = driven.ledger.add(label, params, space, stack="focal/0000", **facts)
        assert added.number == int(number)
    driven.driver()
    assert driven.all_of() == [sorted(together)]
    assert {one.stack for one in driven.ledger.trials()} == {"focal/0000"}


def test_a_budget_pays_for_so_many_rows(tmp_path: Path) -> None:
    """Five trials at an hour each: the third ones are not both paid for."""
    driven = Driven(tmp_path, rows=8, trials=4, budget={"cpu_hours": 5})
    expected = dict.fromkeys(("focal", "mbls"), 1.0)
    driven.driver(Spending(driven.study.spec, driven.ledger.trials(), expected))
    assert trials_of(driven.next()[1]) == [*numbers(0, 3, "focal"), *numbers(0, 2, "mbls")]
    assert driven.search.suggest("none") is None


def test_slots_asked_for_are_stacks(tmp_path: Path) -> None:
    """Of each of two methods ten trials, in stacks of four: three and three."""
    driven = Driven(tmp_path, rows=4, slots=8, trials=10)
    assert sum(driven.search.queue.handed_out_at_once().values()) == 6
    driven.next()
    assert sum(driven.search._demand().values()) == 1 + 2 + 3
    driven.driver()
    assert sum(driven.search._demand().values()) == 1 + 2 + 3


def test_a_failed_row_is_retried_alone_in_its_place(tmp_path: Path) -> None:
    """Also the row that gave its stack the name, while another waits for its next attempt."""
    driven = Driven(tmp_path, rows=4, trials=2)
    stack, _ = driven.next()
    failed = {"state": "failed", "reason": "nan"}
    names = numbers(0, 2)
    driven.reports(stack, {names[0]: failed} | dict.fromkeys(names[1:3], COMPLETE))
    params = driven.ledger.record("focal", 0).params
    driven.ledger.retry("focal", 0, {})
    driven.driver()
    found = {}
    for _ in range(2):
        trial_id, given = driven.next()
        (name,) = [one["trial"] for one in given.get("rows", [given]) if not one["ended"]]
        found[name] = given
        driven.ends(trial_id, {name: COMPLETE})
    assert driven.search.suggest("after") == "FINISHED"
    assert found.keys() == {"focal/0000", "mbls/0001"}
    assert (found["focal/0000"]["attempt"], found["focal/0000"]["stack"]) == (2, None)
    assert [(one.name, one.state) for one in driven.ledger.trials()] == [
        (name, "complete") for name in names
    ]
    assert driven.ledger.record("focal", 0).params == params
