"""Every number of a result is recomputed from stored predictions: each is edited."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from study.audit import result
from study.audit.audit import audit
from study.store.openings import read_tested
from study.store.study import open_study
from tests.shared import made_once
from tests.study.engine.test_confirm import make_confirmed
from tests.study.trained import copy_of, digits
from trainables.outputs.predictions import Predictions

pytestmark = pytest.mark.slow

Change = Callable[[dict[str, Any]], None]


def edited(directory: Path, fact: str, of: str, changes: Iterable[Change]) -> None:
    """Change the last value of a fact in the ledger whose text has `of`."""
    log = directory / "ledger.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = [line["user_attr"][fact] for line in lines if fact in line.get("user_attr", {})]
    (*_, value) = (value for value in found if of in json.dumps(value))
    for change in changes:
        change(value)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def named(storage: Path, name: str, check: str) -> dict[str, str]:
    """What this check of the audit says, by trial."""
    study = open_study(name, str(storage))
    (found,) = (each for each in audit(study, study.tracking(None)).checks if each.name == check)
    return {offender.name: offender.problem for offender in found.offenders}


def problems(
    storage: Path, name: str, check: str, trial: str, fact: str, of: str, changes: Iterable[Change]
) -> list[str]:
    """All that the audit says of the trial after these changes: of no other trial anything."""
    log = storage / name / "ledger.log"
    before = log.read_bytes()
    edited(storage / name, fact, of, changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result, "SHOWN", 1000)
        found = named(storage, name, check)
    log.write_bytes(before)
    assert found.keys() == {trial}
    return found[trial].split("; ")


def nudge(*path: str) -> Change:
    """Add so much to the value at a path that only a recomputation tells."""

    def change(value: dict[str, Any]) -> None:
        for key in path[:-1]:
            value = value[key]
        value[path[-1]] += 2e-4

    return change


def test_each_metric_of_a_search_is_recomputed(tmp_path: Path) -> None:
    storage = copy_of(digits(), tmp_path / "storage")
    record = open_study("small", str(storage)).records().named("focal/0001", "")
    names = sorted(record.metrics)
    assert len(names) >= 20 and {"nll", "ts_nll", "classwise_ece"} <= set(names)
    own = record.digests["predictions.npz"]
    assert named(storage, "small", "results") == {}
    edits = [nudge("metrics", name) for name in names]
    said = problems(storage, "small", "results", record.name, "outcome", own, edits)
    expected = {f"{name} is {record.metrics[name] + 2e-4:g} in the ledger" for name in names}
    assert {text.partition(",")[0] for text in said} == expected


@pytest.fixture
def confirmed(tmp_path: Path) -> Path:
    return copy_of(made_once("confirmed", make_confirmed), tmp_path / "storage")


def test_each_metric_of_a_confirmation_is_recomputed(confirmed: Path) -> None:
    """On test, on a shift set, on samples of no class; and the temperature, of validation."""
    study = open_study("small-confirm", str(confirmed))
    tested = read_tested(study)["focal_0001"][1]
    paths = [("metrics", name) for name in tested.metrics]
    assert ("metrics", "nll") in paths
    for name, shifted in tested.shifts.items():
        paths += [("shifts", name, "metrics", metric) for metric in shifted.metrics]
    assert {path[1] for path in paths} >= {"turned", "noise"}
    own = tested.digests["test.npz"]
    trial = "focal_0001/0001"
    where = (confirmed, "small-confirm", "openings", trial, "tests/1", own)
    assert named(confirmed, "small-confirm", "openings") == {}
    said = problems(*where, [nudge(*path) for path in paths])
    assert {text.partition(" is ")[0] for text in said} == {
        f"{path[-1]} on {path[1] if path[0] == 'shifts' else 'test'}" for path in paths
    }
    of_temperature = problems(*where, [nudge("temperature")])
    assert of_temperature[0].startswith(f"temperature is {tested.temperature + 2e-4:g} in the")


def test_files_changed_with_their_digests_are_told_by_every_metric(confirmed: Path) -> None:
    """As by somebody who edits test.npz and the ledger: the predictions are of other labels."""
    study = open_study("small-confirm", str(confirmed))
    (record,) = (one for one in study.records() if one.name == "focal_0001/0001")
    digest = read_tested(study)["focal_0001"][1].digests["test.npz"]
    file = study.files(record) / "test.npz"
    stored = Predictions.stored(file)
    changed = Predictions(stored.logits, stored.labels.roll(1), by_network=True).save(file)
    log = study.directory / "ledger.log"
    log.write_text(log.read_text().replace(digest, changed))
    problems = named(confirmed, "small-confirm", "openings")
    assert problems.keys() == {record.name} and " on test is " in problems[record.name]
