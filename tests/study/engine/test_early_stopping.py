"""Early stopping in whole studies: killed at each moment of a decision, a study comes
to what no kill would have."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from study.answer.confirmation import results_of
from study.audit.audit import audit
from study.engine.candidates import Asked, confirming_spec
from study.engine.early_stopping import RungScheduler
from study.engine.search import LedgerSearch
from study.store.ledger import Ledger
from study.store.study import StudyFolder, open_study
from tests.patience import wait_until
from tests.study.command_line import here, here_json, kill, start, write_spec
from tests.study.counting import counted_once, epochs_trained, runs_of

pytestmark = pytest.mark.slow
TRIALS, EPOCHS, RUNG = 8, 4, 2


def spec_in(folder: Path, **keys: Any) -> Path:
    return write_spec(
        folder / "small.yaml",
        methods=["cross_entropy", "focal"],
        trials=TRIALS,
        epochs=EPOCHS,
        sampler={"name": "random", "seed": 1},
        early_stopping={"at": 0.5, "keep": 0.3},
        **keys,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of a study that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    here("run", spec_in(folder), "--storage", folder)
    return folder


def told(storage: Path) -> dict[str, Any]:
    """What must not depend on kills: of each trial its parameters, decisions, predictions
    and metrics, as bits."""
    found = {}
    for record in open_study("small", str(storage)).records():
        rungs = {
            epoch: (rung.goes_on, replace(rung, outcome=None, attempt=0))
            for epoch, rung in record.rungs.items()
        }
        digests = {name: digest for name, digest in record.digests.items() if name.endswith(".npz")}
        found[record.name] = (
            record.state,
            record.params,
            rungs,
            digests,
            record.metrics,
            record.epoch,
        )
    return found


def problems(study: StudyFolder) -> list[str]:
    return [
        str(found)
        for check in audit(study, study.tracking(None)).checks
        for found in check.offenders
    ]


def test_who_stops_keeps_what_it_measured_and_is_no_result(whole: Path) -> None:
    study = counted_once(whole, 2 * TRIALS)
    assert problems(study) == []
    records = study.records()
    stopped = [record for record in records.of("focal") if record.state == "pruned"]
    assert len(stopped) >= 2 and {record.state for record in records.of("cross_entropy")} == {
        "complete"
    }
    assert all(record.number >= 3 and not record.rungs[str(RUNG)].goes_on for record in stopped)
    for record in stopped:
        history = json.loads((study.files(record) / "history.json").read_text())
        assert [row["epoch"] for row in history] == [1, 2] and record.epoch == RUNG
        assert record.metrics["brier"] == pytest.approx(history[-1]["brier"], abs=1e-12)
        assert record.rungs[str(RUNG)].costs == [record.metrics["brier"], record.metrics["ece"]]
        assert str(record.reason).startswith("stopped early at epoch 2 of 4: brier 0.")
        assert not list(study.files(record).glob("*.pt"))
    saved = len(stopped) * (EPOCHS - RUNG)
    assert epochs_trained(study) == 2 * TRIALS * EPOCHS - saved
    assert f"ended {len(stopped)} trials after epoch 2 of 4: {saved} of 64 epochs saved" in here(
        "status", "small", "--storage", whole
    )
    assert confirming_spec(results_of(study), Asked(top=1))[0].early_stopping is None, (
        "a confirmation trains every seed to its end"
    )
    names = {record.name for record in stopped}
    rows = {row["trial"]: row for row in here_json("trials", "small", "--storage", whole)}
    assert {name for name, row in rows.items() if row["state"] == "pruned"} == names
    assert not [row for name, row in rows.items() if name in names and row["front"]]
    for run in runs_of(whole):
        is_stopped = run.data.tags["calstudy.trial"] in names
        assert run.info.status == ("KILLED" if is_stopped else "FINISHED")
        assert ("final/ece" in run.data.metrics) != is_stopped and "ece" in run.data.metrics


class Killed(BaseException):
    """As SIGKILL ends a process: nothing of ours is done after it."""


MOMENTS = ("before decide", "after decide", "before _close", "after _close")


@pytest.mark.platform
def test_kills_around_decisions_change_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the decision that a trial stops, before its outcome, before its state, and after
    that: one after another,
    each of a run that goes on from the one before."""
    spec = spec_in(tmp_path)
    for moment in MOMENTS:
        struck = killed_at(moment, spec, monkeypatch)
        left = {record.name: record for record in open_study("small", str(tmp_path)).records()}[
            struck
        ]
        assert left.state == ("pruned" if moment == "after _close" else "running")
        assert bool(left.rungs) == (moment != "before decide")
        if moment == "before decide":
            again = struck
    here("run", spec, "--storage", tmp_path)
    assert told(tmp_path) == told(whole)
    study = counted_once(tmp_path, 2 * TRIALS)
    assert problems(study) == []
    logs = study.directory.glob("trials/*/*/attempt-*/log")
    attempts = Counter(f"{log.parts[-4]}/{log.parts[-3]}" for log in logs)
    tried_again = {name for name, count in attempts.items() if count > 1}
    assert tried_again == {again}, "a trial that was to stop is not trained again"


def killed_at(moment: str, spec: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run until the moment of the first trial that is to stop; that trial."""
    when, name = moment.split()
    original, struck = getattr(Ledger, name), []

    def dies(ledger: Ledger, label: str, number: int, *words: Any) -> None:
        stops = not words[-1].goes_on if name == "decide" else words[0].state == "pruned"
        struck.extend([f"{label}/{number:04d}"] * stops)
        if stops and when == "before":
            raise Killed
        original(ledger, label, number, *words)
        if stops:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Ledger, name, dies)
        here("run", spec, "--storage", spec.parent)
    return struck[0]


@pytest.mark.platform
def test_a_sigkill_with_one_slot_changes_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the driver, while Ray trains, in a run that goes on from another's death: decisions,
    parameters and logits are those of a run that was left alone."""
    ledger = tmp_path / "small" / "ledger.log"
    spec = spec_in(tmp_path, checkpoint_seconds=0)
    words = ("run", spec, "--storage", tmp_path, "--cpus", 1)
    killed_at("before decide", spec, monkeypatch)
    assert ledger.read_text().count('"rungs"') < 9
    driver = start(*words)
    wait_until(lambda: ledger.read_text().count('"rungs"') >= 9, longest=0.01)
    kill(driver)
    here(*words)
    study = counted_once(tmp_path, 2 * TRIALS)
    assert {record.attempt for record in study.records()} >= {1, 2}
    assert told(tmp_path) == told(whole) and problems(study) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rung: rung.update(goes_on=True) or rung.pop("outcome"),
            "goes on after epoch 2, the rule that it stops",
        ),
        (lambda rung: rung["costs"].__setitem__(1, 0.0), "ece costs 0 in the ledger"),
        (lambda rung: rung.update(place=0), "the places of its decisions are 0, 0, "),
        (lambda rung: rung["costs"].pop(), "has 1 costs, not one for each of brier, ece"),
    ],
)
def test_audit_recomputes_every_decision(
    whole: Path, tmp_path: Path, change: Any, said: str
) -> None:
    shutil.copytree(whole / "small", tmp_path / "small")
    shutil.copy(whole / "mlflow.db", tmp_path)
    log, changed = tmp_path / "small" / "ledger.log", []
    for line in log.read_text().splitlines():
        plain = json.loads(line)
        rung = plain.get("user_attr", {}).get("rungs", {}).get(str(RUNG))
        if rung is not None and not rung["goes_on"] and not changed:
            change(rung)
            changed.append(rung)
        log.with_name("new").open("a").write(json.dumps(plain) + "\n")
    log.with_name("new").replace(log)
    assert changed and said in " | ".join(problems(open_study("small", str(tmp_path))))


def test_audit_misses_a_rungs_predictions(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole / "small", tmp_path / "small")
    shutil.copy(whole / "mlflow.db", tmp_path)
    (tmp_path / "small" / "trials" / "focal" / "0000" / "attempt-1" / "rung-2.npz").unlink()
    assert [
        found
        for found in problems(open_study("small", str(tmp_path)))
        if "rung-2.npz is missing" in found
    ]


def test_an_error_in_a_decision_ends_the_run_and_stops_no_trial() -> None:
    """Raised in Ray's hands it would only fail the trial."""

    search = LedgerSearch.__new__(LedgerSearch)
    search.fault, search._live = None, {}
    told = {"focal/0000": {"rows": [], "outcome": None, "rung": {"epoch": 2}}}
    report = {"reports": json.dumps(told)}
    assert (
        RungScheduler(search.goes_on).on_trial_result(None, SimpleNamespace(trial_id="0"), report)
        == "CONTINUE"
    )
    assert isinstance(search.fault, TypeError)
