"""Every number of a result is recomputed from stored predictions: each is edited, one at a time."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from study.audit.audit import audit
from study.store.openings import read_tested
from study.store.study import open_study
from tests.shared import made_once
from tests.study.engine.test_confirm import make_confirmed
from tests.study.trained import copy_of, digits
from trainables.outputs.predictions import Predictions

pytestmark = pytest.mark.slow

Change = Callable[[dict[str, Any]], None]


def edited(directory: Path, fact: str, of: str, change: Change) -> None:
    """Change the last value of a fact in the ledger whose text has `of`."""
    log = directory / "ledger.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = [line["user_attr"][fact] for line in lines if fact in line.get("user_attr", {})]
    change([value for value in found if of in json.dumps(value)][-1])
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def named(storage: Path, name: str, check: str) -> dict[str, str]:
    """What this check of the audit says, by trial."""
    study = open_study(name, str(storage))
    (found,) = (each for each in audit(study, study.tracking(None)).checks if each.name == check)
    return {offender.name: offender.problem for offender in found.offenders}


def each_edited(storage: Path, name: str, check: str, trial: str, edits: Any) -> Iterator[str]:
    """What the audit says of the trial after each edit alone: of no other trial anything."""
    log = storage / name / "ledger.log"
    before = log.read_bytes()
    assert named(storage, name, check) == {}
    for fact, of, change in edits:
        edited(storage / name, fact, of, change)
        found = named(storage, name, check)
        assert found.keys() == {trial}
        yield found[trial]
        log.write_bytes(before)


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
    edits = [("outcome", own, nudge("metrics", name)) for name in names]
    said = list(each_edited(storage, "small", "results", record.name, edits))
    for name, text in zip(names, said, strict=True):
        assert f"{name} is {record.metrics[name] + 2e-4:g} in the ledger" in text


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
    paths.append(("temperature",))
    own = tested.digests["test.npz"]
    edits = [("tests/1", own, nudge(*path)) for path in paths]
    trial = "focal_0001/0001"
    said = list(each_edited(confirmed, "small-confirm", "openings", trial, edits))
    for path, text in zip(paths, said, strict=True):
        on = f" on {path[1]}" if path[0] == "shifts" else ""
        on = " on test" if path[0] == "metrics" else on
        assert f"{path[-1]}{on} is " in text


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
