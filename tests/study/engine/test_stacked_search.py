"""Which trials form a stack, and what becomes of it: a search without Ray or training."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from study.engine.budget import Spending
from study.engine.search import OVERDUE_SECONDS, LedgerSearch
from study.machines.guarded import Unfit
from study.schema.reading import spec_from_mapping
from study.store.ledger import Ledger, open_storage
from study.store.recorded import Stacked
from study.store.study import Study, open_directory
from study.store.trials import Listener, TrialRecord, ended_stacks, stack_directory
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
        self.study = Study.of(directory, spec, recorded)
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
    rows = [one["trial"] for one in assignment.get("rows", [assignment])]
    return [name for name in rows if name not in assignment.get("ended", ())]


def numbers(first: int, end: int, *labels: str) -> list[str]:
    names = []
    for number in range(first, end):
        names += [f"{label}/{number:04d}" for label in labels or ("focal", "mbls")]
    return names


def test_a_stack_takes_as_many_numbers_of_every_method(tmp_path: Path) -> None:
    """Of twenty rows each of two methods has ten; the last stack has what is left."""
    driven = Driven(tmp_path, rows=20, trials=24)
    _, first = driven.next()
    assert first["name"] == "focal/0000" and first["attempt"] == 1 and first["ended"] == []
    assert first["directory"] == str(driven.study.directory / "stacks" / "focal-0000")
    assert trials_of(first) == numbers(0, 10)
    recorded = {one.name: one for one in driven.ledger.trials()}
    assert list(recorded) == sorted(numbers(0, 10))  # before they start
    assert {one.stack for one in recorded.values()} == {"focal/0000"}
    assert {one.attempt for one in recorded.values()} == {1}
    assert recorded["focal/0000"].together == tuple(numbers(0, 10))
    driven.ends("t1", dict.fromkeys(numbers(0, 10), COMPLETE))
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
    a stack has three numbers."""
    driven = Driven(tmp_path, 8, 9, trials=12, sampler={"name": "tpe", "pending": 3})
    assert trials_of(driven.next()[1]) == numbers(0, 3)
    assert trials_of(driven.next()[1]) == numbers(3, 6)
    # Of focal 4 and 5 wait: one more may. mbls fills its places, and goes first.
    assert trials_of(driven.next()[1]) == numbers(6, 9, "mbls")
    _, alone = driven.next()
    assert alone["trial"] == "focal/0006" and alone["stack_directory"] is None
    assert driven.ledger.record("focal", 6).stack is None
    assert driven.search.suggest("none") is None
    driven.ends("t2", dict.fromkeys(numbers(3, 6), COMPLETE))
    assert trials_of(driven.next()[1]) == numbers(7, 9, "focal")


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
    assert sorted(chain(*handed_out)) == sorted(records)
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


def test_a_row_that_ends_is_told_at_once_and_its_place_stays_empty(tmp_path: Path) -> None:
    driven = Driven(tmp_path, rows=6, trials=3)
    stack, _ = driven.next()
    diverged = {"state": "failed", "reason": "loss is nan at epoch 1"}
    driven.search.attempt_started(stack)
    driven.reports(stack, {**dict.fromkeys(numbers(0, 3)), "mbls/0000": diverged})
    assert driven.ledger.record("mbls", 0).state == "failed"
    assert driven.ledger.record("mbls", 0).attempt == 1
    driven.search.attempt_died(stack, DIED)
    assert driven.search.fault is None
    _, again = driven.next()
    assert [one["trial"] for one in again["rows"]] == numbers(0, 3)
    assert again["ended"] == ["mbls/0000"] and again["attempt"] == 2
    assert ("stopped", "mbls/0000") not in driven.heard.events
    driven.driver()  # killed: the next one goes on with the same
    stack, third = driven.next()
    assert {**third, "attempt": 2}["ended"] == again["ended"] and third["attempt"] == 3
    assert [one["trial"] for one in third["rows"]] == numbers(0, 3)
    folder = stack_directory(driven.study.directory, "focal/0000")
    (folder / "attempt-3").mkdir(parents=True)
    left = [name for name in numbers(0, 3) if name != "mbls/0000"]
    driven.reports(stack, {**dict.fromkeys(left), left[0]: COMPLETE})
    assert folder.exists() and not ended_stacks(driven.study.directory, driven.ledger.trials())
    driven.ends(stack, dict.fromkeys(left[1:], COMPLETE))
    assert not folder.exists()
    folder.mkdir()  # a kill came before
    assert ended_stacks(driven.study.directory, driven.ledger.trials()) == [folder]
    assert driven.search.suggest("after") == "FINISHED"


@pytest.mark.parametrize(
    ("cause", "times"), [("process", 3), ("out_of_memory", 1), ("hanging", 1), ("node", 20)]
)
def test_a_stack_is_tried_again_as_the_same_one_then_its_trials_train_alone(
    tmp_path: Path, cause: str, times: int
) -> None:
    driven = Driven(tmp_path, rows=4, trials=2, slots=4, trial_minutes=1)
    for time_ in range(1, times + 1):
        stack, given = driven.next()
        assert given["attempt"] == time_ and trials_of(given) == numbers(0, 2)
        driven.search.attempt_started(stack)
        if cause == "out_of_memory":
            out = {"state": "out_of_memory", "reason": "OutOfMemoryError"}
            driven.ends(stack, dict.fromkeys(numbers(0, 2), out))
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
    assert driven.ledger.notes("focal")["stack/0"] == {"deaths": {cause: times}, "alone": True}
    driven.driver()  # also after a kill
    folder = str(stack_directory(driven.study.directory, "focal/0000"))
    for name in numbers(0, 2):
        trial_id, given = driven.next()
        assert given["trial"] == name and given["attempt"] == times + 1
        assert given["stack_directory"] == folder
        driven.search.attempt_died(trial_id, DIED)
    assert {str(one.deaths) for one in driven.ledger.trials()} == {"{'process': 1}"}
    Path(folder).mkdir(parents=True)
    assert driven.all_of() == [[name] for name in numbers(0, 2)]
    assert not Path(folder).exists()


def test_a_disk_or_a_node_that_does_not_fit_keeps_the_stack_together(tmp_path: Path) -> None:
    driven = Driven(tmp_path, rows=4, trials=2)
    stack, _ = driven.next()
    out = {"state": "interrupted", "reason": "OSError: no space left"}
    driven.ends(stack, dict.fromkeys(numbers(0, 2), out))
    assert driven.ledger.notes("focal")["stack/0"] == {"deaths": {"process": 1}, "alone": False}
    stack, _ = driven.next()
    unfit = json.dumps({"node": "7d39", "because": "does not see /srv"})
    driven.search.attempt_died(stack, f"study.machines.guarded.NodeUnfit: {unfit}\n")
    assert driven.search._nodes.unfit == [Unfit("7d39", "does not see /srv")]  # type: ignore[attr-defined]
    _, again = driven.next()
    assert trials_of(again) == numbers(0, 2) and again["attempt"] == 3
    assert driven.ledger.notes("focal")["stack/0"]["deaths"] == {"process": 1}


def test_a_budget_pays_for_so_many_rows(tmp_path: Path) -> None:
    """Five trials at an hour each: the third numbers are not both paid for."""
    driven = Driven(tmp_path, rows=8, trials=4, budget={"cpu_hours": 5})
    expected = dict.fromkeys(("focal", "mbls"), 1.0)
    driven.driver(Spending(driven.study.spec, driven.ledger.trials(), expected))
    assert trials_of(driven.next()[1]) == [*numbers(0, 2), "focal/0002"]
    assert driven.search.suggest("none") is None


def test_slots_asked_for_are_stacks(tmp_path: Path) -> None:
    """Of each of two methods ten trials, in stacks of four: three and three."""
    driven = Driven(tmp_path, rows=4, slots=8, trials=10)
    assert sum(driven.search.queue.handed_out_at_once().values()) == 6
    driven.next()
    assert sum(driven.search._demand().values()) == 1 + 2 + 3
    driven.driver()
    assert sum(driven.search._demand().values()) == 1 + 2 + 3
