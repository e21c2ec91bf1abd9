"""Whose fault a death is: of the trial, of the machine, or of a trial that is too big for it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayTaskError

from study.engine.deaths import GIB, Death, Memory, death_of, with_memory
from study.machines.ray_session import ClusterUnready
from tests.study.command_line import calstudy, here, write_spec
from tests.study.counting import counted_once
from tests.study.engine.test_stacked_search import COMPLETE, Driven, trials_of

ACTORS = ("1129979eaf79b34852edb2f701000000", "52e301eb7c61a6052d553a7801000000")
# As Ray 2.60 said it of a process that was sent SIGKILL; one that ends itself looks the same.
EXITED = (
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker"
    " exit detail: Worker unexpectedly exits with a connection error code 2. End of file. Some"
    " common causes include: (1) the process was killed by the OOM killer due to high memory usage"
)
KILLED = str(ActorDiedError(ActorDiedErrorContext(actor_id=bytes(16), error_message=EXITED)))


def monitor(used: float, limit: float, *own: float) -> str:
    """What Ray's memory monitor says, in GiB; own: of each of ACTORS that it killed."""
    killed = [
        f"Selected to kill: (Actor({actor}): job ID=01000000, lease ID=02, task name=A.__init__,"
        f" required resources={{CPU: 1}}, pid=1443, actual memory used={size:.2f}GB, worker ID=33)"
        for actor, size in zip(ACTORS, own, strict=False)
    ]
    lines = [
        f"{len(own)} worker(s) were killed due to the node running low on memory. Memory on the"
        f" node (IP: 192.0.2.2, ID: 16) was {used:.2f}GB used / {limit:.2f}GB limit (0.9)",
        f"OOM kill reason: Memory usage {int(used * GIB)}B exceeded threshold of"
        f" {int(limit * GIB)}B (95.0% of 25276510208B limit)",
        "Considered workers: [",
        *killed,
        "]",
        "Top 10 memory users: PID\tMEM(GB)\tCOMMAND",
    ]
    return str(OutOfMemoryError("\n".join(lines)))


def test_the_monitors_numbers_are_those_of_the_trial() -> None:
    """It kills several at once, and tells each of all."""
    said = monitor(3.25, 3.0, 0.5, 1.75)
    memories = [death_of(said, actor).memory for actor in (*ACTORS, None)]
    assert memories == [
        Memory(int(3.25 * GIB), 3 * GIB, own and int(own * GIB)) for own in (0.5, 1.75, None)
    ]
    death = death_of(monitor(3.25, 3.0, 1.75))
    assert death.cause == "machine" and death.told == (
        "out of memory: Ray's memory monitor killed its process (used 3.25 GiB, limit 3.00 GiB, the"
        " trial's own 1.75 GiB)"
    )


def test_a_killed_process_is_the_machines_and_an_exception_the_trials() -> None:
    assert death_of(KILLED) == Death(
        "machine",
        "its process died: its worker process has died; Worker unexpectedly exits with a"
        " connection error code 2",
    )
    said = f"\x1b[36mray::A.step()\x1b[39m (pid=1)\n  File ...\nRuntimeError: {monitor(3, 2, 1)}"
    raised = RayTaskError("step", said, RuntimeError())
    assert death_of(str(raised)).cause == "process"
    assert death_of(f"RuntimeError: {KILLED}").cause == "process"


@pytest.mark.parametrize(
    ("memory", "idle", "too_big"),
    [
        (Memory(10, 10, 6), True, True),
        (Memory(10, 10, 5), True, False),
        (Memory(10, 10, 4), False, False),
        (Memory(17, 10, 6), False, False),  # others have more than all of it
        (Memory(10, 10), False, False),
        (Memory(5, 10), True, False),
        (None, True, False),
    ],
)
def test_whose_memory_it_was(memory: Memory | None, idle: bool, too_big: bool) -> None:
    death = Death("machine", "", memory)
    assert (death.on_idle_node, death.of_too_big) == (idle, too_big)


def test_what_ray_does_not_tell_is_measured() -> None:
    assert with_memory(Death("machine", ""), (3, 9)).memory == Memory(3, 9)
    assert with_memory(Death("machine", "", Memory(1, 2)), (3, 9)).memory == Memory(1, 2)


class Clocked(Driven):
    """Trials of focal that train alone, or stacks of so many, on a clock of the test's own."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, rows: int = 1, **keys: Any) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        patch.setattr("study.engine.search.time", clock)
        patch.setattr("study.engine.queue.time", clock)
        super().__init__(root, rows, **{"methods": ["focal"], "stack": "off", **keys})

    def begins(self) -> tuple[str, str]:
        """Ray's id of the next one, which starts at once, and its name, or names."""
        trial_id, given = self.next()
        self.search.attempt_started(trial_id, actor=ACTORS[0])
        return trial_id, " ".join(trials_of(given))

    def dies(self, trial_id: str, said: str) -> None:
        self.search.attempt_died(trial_id, said)

    def is_tried_again(self) -> tuple[float, str, str]:
        """After how many seconds which trial is, by Ray's id and name."""
        for waited in range(61):
            self.ids += 1
            given = self.search.suggest(f"t{self.ids}")
            assert self.fault is None and given != "FINISHED", self.fault
            if given is not None:
                self.search.attempt_started(f"t{self.ids}", actor=ACTORS[0])
                names = " ".join(trials_of(json.loads(given["assignment"])))
                return waited, f"t{self.ids}", names
            self.now += 1
        raise AssertionError("it is not tried again")

    @property
    def fault(self) -> Any:
        return self.search.fault


def test_a_killed_trial_pauses_while_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is not counted against; nor is the driver's death in a pause."""
    driven = Clocked(tmp_path, monkeypatch, slots=2, trials=8)
    killed, name = driven.begins()
    other, _ = driven.begins()
    driven.dies(killed, KILLED)
    assert (name, driven.begins()[1]) == ("focal/0000", "focal/0002")
    driven.ends(other, {"focal/0001": COMPLETE})
    driven.now += 4.9
    assert driven.begins()[1] == "focal/0003"
    driven.now += 0.2
    again, again_name = driven.begins()
    assert again_name == name
    driven.dies(again, monitor(3.2, 3.0, 0.4))
    driven.now += 9.9
    assert driven.begins()[1] == "focal/0004"
    record = driven.ledger.record("focal", 0)
    assert (record.state, record.deaths, record.attempt) == ("running", {"machine": 2}, 2)
    assert record.memory == {"2": {"used": int(3.2 * GIB), "limit": 3 * GIB, "own": int(0.4 * GIB)}}
    driven.driver()  # after a kill
    assert driven.begins()[1] == name
    driven.driver()
    left = [f"focal/000{number}" for number in range(8) if number != 1]
    assert sorted(name for (name,) in driven.all_of()) == left


def test_a_trial_that_is_too_big_fails_where_others_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside another it may have been too much together: it is tried alone first."""
    driven = Clocked(tmp_path, monkeypatch, slots=2, trials=3)
    big, name = driven.begins()
    other, _ = driven.begins()
    driven.dies(big, monitor(3.0, 2.9, 1.8))
    driven.ends(other, {"focal/0001": COMPLETE})
    last, _ = driven.begins()
    driven.now += 30
    assert driven.search.suggest("none") is None  # it waits until it is alone
    driven.ends(last, {"focal/0002": COMPLETE})
    alone, again = driven.begins()
    assert again == name
    driven.dies(alone, monitor(3.0, 2.9, 2.7))
    record = driven.ledger.record("focal", 0)
    assert (record.state, record.reason) == (
        "failed",
        "out of memory: Ray's memory monitor killed its process (used 3.00 GiB, limit 2.90 GiB, the"
        " trial's own 2.70 GiB)",
    )
    assert driven.search.suggest("end") == "FINISHED"


@pytest.mark.parametrize("others", [0, 2])
def test_who_dies_three_times_alone_on_an_idle_node_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Also a study of one trial. A kill of the machine looks like one by the trial's own code."""
    driven = Clocked(tmp_path, monkeypatch, slots=2, trials=1 + others)
    driven.begins()
    for _ in range(others):
        trial_id, name = driven.begins()
        driven.ends(trial_id, {name: COMPLETE})
    driven.dies("t1", KILLED)
    pauses = []
    while driven.ledger.record("focal", 0).is_open:
        pause, trial_id, name = driven.is_tried_again()
        pauses.append(pause)
        assert name == "focal/0000"
        driven.dies(trial_id, KILLED)
    assert pauses == ([5, 10, 20] if others else [5, 10])
    record = driven.ledger.record("focal", 0)
    assert record.deaths["alone"] == 3
    assert str(record.reason).startswith("out of memory or its code: its process died: ")
    assert str(record.reason).endswith(", 3 times alone")
    assert driven.fault is None and driven.search.suggest("end") == "FINISHED"


@pytest.mark.parametrize("said", [KILLED, monitor(9.0, 3.0, 0.4)])
@pytest.mark.parametrize("slots", [1, 2])
def test_where_all_die_alike_the_run_ends_and_none_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, slots: int
) -> None:
    """With a few that began, not with all that are planned; and again in the next run, also where
    some have ended well before."""
    driven = Clocked(tmp_path, monkeypatch, slots=slots, trials=21)
    first, name = driven.begins()
    driven.ends(first, {name: COMPLETE})
    for _ in range(2):
        began = driven.now
        while driven.fault is None:
            _, trial_id, _ = driven.is_tried_again()
            driven.dies(trial_id, said)
        assert isinstance(driven.fault, ClusterUnready)
        assert driven.fault.found.startswith("20 trials are left to do, and each")
        assert said == KILLED or "(used 9.00 GiB, limit 3.00 GiB" in driven.fault.found
        assert 35 <= driven.now - began <= 60
        records = driven.ledger.trials()
        assert len(records) <= 5 and len(records.running) == len(records) - 1
        driven.driver()
    assert len(driven.all_of()) == 20
    assert {one.state for one in driven.ledger.trials()} == {"complete"}


def test_the_last_two_that_always_die_fail_after_some_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `run` until it is not 75 would have no end."""
    driven = Clocked(tmp_path, monkeypatch, slots=2, trials=2)
    for _ in range(6):
        given = driven.search.suggest("first")
        while given != "FINISHED" and driven.fault is None:
            if given is not None:
                driven.search.attempt_started("first")
                driven.search.attempt_died("first", KILLED)
            driven.now += 1
            given = driven.search.suggest("first")
        driven.driver()
    assert {one.state for one in driven.ledger.trials()} == {"failed"}


def test_a_neighbours_memory_is_not_the_fault_of_the_only_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = Clocked(tmp_path, monkeypatch, trials=1)
    pauses = []
    while driven.fault is None:
        pause, trial_id, _ = driven.is_tried_again()
        pauses.append(pause)
        driven.dies(trial_id, monitor(3.1, 3.0, 0.4))
    assert pauses == [0, 5, 10, 20] and "1 trial is left to do" in driven.fault.found
    assert driven.ledger.record("focal", 0).deaths == {"machine": 4}


def test_a_stack_pauses_too_and_keeps_its_own_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = Clocked(tmp_path, monkeypatch, rows=4, trials=4, stack=4)
    for pause in (0, 5, 10):
        waited, trial_id, names = driven.is_tried_again()
        assert waited == pause
        if pause < 10:
            assert names == "focal/0000 focal/0001 focal/0002 focal/0003"
            driven.dies(trial_id, KILLED)
    assert names == "focal/0000" and driven.begins()[1] == "focal/0001"  # not one by one
    assert {str(one.deaths) for one in driven.ledger.trials()} == {"{'stack': 2}"}


@pytest.mark.slow
@pytest.mark.platform
def test_memory_that_others_took_ends_the_run_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's monitor is made to see too little memory; it killed each trial for good."""
    spec = write_spec(tmp_path / "small.yaml", trials=2, stack="off")
    words = ("run", spec, "--storage", tmp_path, "--cpus", 1)
    with monkeypatch.context() as full:
        full.setenv("RAY_memory_usage_threshold", "0.001")
        full.setenv("RAY_memory_monitor_refresh_ms", "250")
        done = calstudy(*words, check=75)
    assert "4 trials are left to do, and each that is tried is killed" in done.stderr
    assert "GiB, limit 0." in done.stderr and "Traceback" not in done.stderr
    here(*words)
    study = counted_once(tmp_path, 4)
    assert all(one.state == "complete" for one in study.records())
    assert any(one.deaths["machine"] >= 4 for one in study.records() if one.deaths)
