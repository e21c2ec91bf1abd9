"""Candidates that race: which seeds are trained, killed or not, and what is said of it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from study.analysis.racing import standing_of
from study.analysis.ranking import rules_of
from study.audit.audit import audit
from study.engine.queue import Queue
from study.store.ledger import Ledger, open_ledger
from study.store.recorded import LEAST, Race
from study.store.study import StudyFolder, open_study, record_facts
from study.store.trials import Listener
from tests.shared import made_once
from tests.study.command_line import here, here_apart, here_json
from tests.study.engine.test_confirm import search
from tests.study.made import made_study
from tests.study.made import unanswered as unanswered  # fixture
from tests.study.trained import copy_of
from trainables.outputs.outcome import Outcome

Approved = Callable[..., None]
ROWS = [f"focal_{number:04d}" for number in range(6)]
DEFAULT = "cross_entropy_default"


# ---- what is asked, without training -------------------------------------------------------------


def raced(root: Path, at_once: int = 2, **rules: Any) -> StudyFolder:
    """A confirmation that has begun no trial."""
    study = made_study(root, "raced", {label: [] for label in [*ROWS, DEFAULT]}, planned=12)
    race = Race(at_once=at_once, also=[DEFAULT], least=LEAST, **rules)
    record_facts(study.directory, study, race=race)
    return open_study("raced", str(root))


def outcome_of(label: str, number: int) -> Outcome:
    """What this seed comes to: three rows are within .2 units of each other. One in ten fails."""
    place = [*ROWS, DEFAULT].index(label)
    rng = np.random.default_rng([9, place, number])
    if rng.random() < 0.1:
        return Outcome(attempt=1, state="failed", reason="loss is nan")
    error = 0.05 + 0.001 * place if place < 3 else 0.08
    metrics = {"accuracy": 1 - error - rng.normal(0, 0.008), "ece": rng.uniform(0.02, 0.03)}
    return Outcome(attempt=1, state="complete", metrics={**metrics, "nll": 0.2})


class Heard(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def said(self, line: str) -> None:
        self.lines.append(line)


def driven(study: StudyFolder, slots: int, kills: Any = None, heard: Listener | None = None) -> int:
    """Until nothing is left, as a driver does: so many trials at once, which end in any order.
    kills: a source of chance, by which the driver is killed, and another goes on.
    How often it was."""
    killed, chance = 0, np.random.default_rng(0)
    live: list[Any] = []
    ledger, queue = opened(study, slots, heard)
    while True:
        while len(live) < 2 * slots and (group := queue.next(len(live))) is not None:
            ledger.begin_attempt(group.records[0].label, group.records[0].number)
            live.append(group.records[0])
        if not live:
            return killed
        if kills is not None and kills.random() < 0.4:
            live, killed = [], killed + 1
            ledger, queue = opened(study, slots, heard)
            continue
        one = live.pop(int(chance.integers(len(live))))
        told = replace(
            outcome_of(one.label, one.number), attempt=ledger.record(one.label, one.number).attempt
        )
        queue.ended(ledger.tell(one.label, one.number, told, study.spec.objectives))


def opened(study: StudyFolder, slots: int, heard: Listener | None) -> tuple[Ledger, Queue]:
    ledger, _ = open_ledger(study)
    listeners = [] if heard is None else [heard]
    return ledger, Queue(study, ledger, rules_of(study), listeners, lambda: slots)


def seeds_of(study: StudyFolder) -> dict[str, int]:
    return {label: len(found) for label, found in study.records().by_label.items()}


def test_it_asks_what_the_rule_decides_killed_twenty_times_or_not(tmp_path: Path) -> None:
    whole = raced(tmp_path / "whole")
    heard = Heard()
    driven(whole, 2, heard=heard)
    records = whole.records()
    now = standing_of(whole, records)
    assert now is not None and now.ended and now.leader is not None
    assert seeds_of(whole) == {**now.seeds, DEFAULT: now.seeds[now.leader]}
    assert now.seeds[DEFAULT] < now.seeds[now.leader]
    assert 2 * len(ROWS) < sum(now.seeds.values()) < 12 * len(ROWS)
    assert not whole.lacking(records)
    assert not any(place.goes_on for place in records.places.values())
    assert heard.lines and all(" leads; " in line for line in heard.lines)
    killed = raced(tmp_path / "killed")
    assert driven(killed, 2, np.random.default_rng(0)) >= 20
    assert seeds_of(killed) == seeds_of(whole)
    assert standing_of(killed, killed.records()) == now
    assert killed.records().places == records.places


def test_how_many_slots_there_are_now_decides_nothing(tmp_path: Path) -> None:
    """`at_once` was recorded at the first start; the study goes on on another machine."""
    first, second = raced(tmp_path / "first"), raced(tmp_path / "second")
    driven(first, 1)
    driven(second, 7)
    assert seeds_of(first) == seeds_of(second)


def test_a_race_that_goes_on_lacks_a_trial(tmp_path: Path) -> None:
    """Between the last result of a round and the next decision no reader takes it for finished."""
    study = raced(tmp_path)
    ledger, queue = opened(study, 2, None)
    while (group := queue.next(0)) is not None:
        one = group.records[0]
        ledger.begin_attempt(one.label, one.number)
        told = outcome_of(one.label, one.number)
        ledger.tell(one.label, one.number, told, study.spec.objectives)
        if seeds_of(study) == dict.fromkeys([*ROWS, DEFAULT], 2):
            break
    records = study.records()
    assert not records.running and study.lacking(records) == 1


def test_the_race_may_be_ended_by_trainings(tmp_path: Path) -> None:
    study = raced(tmp_path, trainings=16)
    driven(study, 2)
    now = standing_of(study, study.records())
    assert now is not None and sum(now.seeds.values()) == 16 and now.rivals


# ---- with the command ----------------------------------------------------------------------------

TOLD = {
    "focal": [(0.90, 0.05), (0.95, 0.04), (0.60, 0.30)],
    "mbls": [(0.93, 0.03), (0.80, 0.06), (0.94, 0.05)],
}


def make_raced(storage: Path) -> None:
    search(storage, told=TOLD, search_space={}, epochs=1)  # alike but for gamma and margin
    words = ("confirm", "small", "--at-most", 3, "--storage", storage)
    said, shown = [], here_apart(*words)
    said += [shown[0], shown[1]]
    (storage / "shown.json").write_text(json.dumps(said))


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return copy_of(made_once("raced", make_raced), tmp_path)


def counted(storage: Path) -> dict[str, int]:
    return seeds_of(open_study("small-confirm", str(storage)))


@pytest.mark.slow
def test_it_says_what_it_will_do_and_how_it_ended(storage: Path) -> None:
    shown, said = json.loads((storage / "shown.json").read_text())
    (first,) = [line for line in (shown + said).splitlines() if "trainings first" in line]
    assert "+ 1 default) x 2 seeds = " in first and "then more where they decide, until" in first
    assert "no other model is likely to be better by 0.0025 in accuracy or 0.0025 in ECE" in first
    assert (
        ", or has 3 seeds; opens test once for each model" in first
        and "The race ended after " in shown
    )
    study = open_study("small-confirm", str(storage))
    race = study.recorded.race
    now = standing_of(study, study.records())
    assert race is not None and now is not None and now.leader is not None
    assert race.also == [DEFAULT] and not any("focal_default" in one for one in study.labels)
    compared = max(now.seeds[DEFAULT], now.seeds[now.leader])
    assert counted(storage) == {**now.seeds, DEFAULT: compared}
    report = audit(study, study.tracking(None))
    assert report.clean and "race" in {check.name for check in report.checks}


@pytest.mark.slow
@pytest.mark.usefixtures("unanswered")
def test_it_goes_on_as_it_was_or_with_other_limits(storage: Path) -> None:
    before = counted(storage)
    here("confirm", "small", "--storage", storage)
    assert counted(storage) == before
    here("confirm", "small", "--until", 0, "--at-most", 4, "--storage", storage)
    after = counted(storage)
    assert all(after[label] >= count for label, count in before.items()) and after != before
    here("confirm", "small", "--seeds", 3, "--storage", storage)
    most = max(after.values())
    assert set(counted(storage).values()) == {most}
    study = open_study("small-confirm", str(storage))
    assert study.recorded.race is None and audit(study, study.tracking(None)).clean


@pytest.mark.slow
def test_what_does_not_race(tmp_path: Path) -> None:
    search(tmp_path, told=TOLD)

    def dry(*words: object) -> Any:
        return here_json("confirm", "small", "--dry-run", *words, "--storage", tmp_path)

    assert dry("--trial", "focal/1")["ends"] == ""
    assert (dry("--trial", "focal/1")["seeds"], dry("--seeds", 2)["ends"]) == (3, "")
    two = ("--trial", "focal/1", "--trial", "mbls/2", "--until", 1)
    assert dry(*two)["ends"] and dry(*two)["defaults"] == [DEFAULT]
    assert {*dry(*two, "--defaults")["defaults"]} == {DEFAULT, "focal_default", "mbls_default"}
    every = dry()
    assert len(dry("--candidates", 1)["candidates"]) < len(every["candidates"])
    models = len(every["candidates"]) + 1
    assert (every["trainings"], every["usual"]) == (2 * models, 4 * models)
    assert dry("--trainings", 2 * models + 1)["usual"] == 2 * models + 1
    assert dry("--at-most", 3)["usual"] == 3 * models and dry("--seeds", 2)["usual"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--seeds", 3, "--until", 0), "--until is for a race, and with --seeds"),
        (("--trainings", 3), "--trainings: 3 do not give 6 models 2 seeds each. Allow 12"),
        (("--until", -1), "--until"),
    ],
)
def test_what_no_race_can_be_run_with(
    tmp_path: Path, words: tuple[object, ...], named: str
) -> None:
    search(tmp_path, told=TOLD)
    said = here("confirm", "small", *words, "--storage", tmp_path, check=2)
    assert named in said
    assert not (tmp_path / "small-confirm").exists()


@pytest.mark.slow
def test_an_audit_names_a_decision_that_no_seed_supports(storage: Path) -> None:
    log = storage / "small-confirm" / "ledger.log"
    shutil.copy(log, storage / "whole.log")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    places = [line for line in lines if "race" in line.get("user_attr", {})]
    places[-1]["user_attr"]["race"]["seeds"] += 1
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    study = open_study("small-confirm", str(storage))
    report = audit(study, study.tracking(None))
    (race,) = [check for check in report.checks if check.name == "race"]
    assert len(race.offenders) == 1 and not report.clean
