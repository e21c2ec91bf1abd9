"""The Ray trainable without Ray's cluster: called as Tune calls it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainables import trainable as module
from trainables.attempt import attempts_in
from trainables.config import TrialConfig
from trainables.data.digits import Digits
from trainables.predictions import Predictions, file_digest
from trainables.prepared import data_digest
from trainables.trainable import Assignment, CalibrationTrainable, trainable_for

pytestmark = pytest.mark.slow


def assignment(directory: Path, attempt: int = 1, **settings: Any) -> Assignment:
    digest = settings.pop("digest", data_digest(Digits(), 0))
    plain = {"data": "digits", "model": "mlp", "method": "focal", "epochs": 3, **settings}
    config = TrialConfig.from_mapping(plain).to_mapping()
    return Assignment("focal/0000", str(directory), attempt, config, digest, 30.0, "cpu", 1)


@pytest.fixture
def actor() -> CalibrationTrainable:
    made = CalibrationTrainable.__new__(CalibrationTrainable)  # Tune's own set-up wants a storage
    return made


def report(actor: CalibrationTrainable) -> dict[str, Any]:
    result = actor.step()
    plain: dict[str, Any] = json.loads(result["report"])
    assert result["done"] == (plain["outcome"] is not None)
    return plain


def begin(actor: CalibrationTrainable, given: Assignment) -> None:
    assert actor.reset_config({"assignment": given.to_json()})


def test_a_trial_leaves_files_that_are_what_it_reports(actor: CalibrationTrainable, tmp_path: Path) -> None:
    begin(actor, assignment(tmp_path))
    found = report(actor)
    outcome, files = found["outcome"], tmp_path / "attempt-1"
    assert [row["epoch"] for row in found["rows"]] == [1, 2, 3] and outcome["state"] == "complete"
    assert outcome["digests"] == {
        name: file_digest(files / name) for name in ("predictions.npz", "history.json", "model.pt")
    }
    assert outcome["metrics"] == pytest.approx(Predictions.load(files / "predictions.npz").evaluate(), abs=1e-12)
    assert json.loads((files / "history.json").read_text()) == found["rows"]
    assert (files / "log").read_text().count("epoch=") == 3


def test_one_actor_serves_trial_after_trial(actor: CalibrationTrainable, tmp_path: Path) -> None:
    """What a trial leaves does not depend on what its process trained before."""
    outcomes = []
    for directory, method in ((tmp_path / "a", "focal"), (tmp_path / "b", "mbls"), (tmp_path / "c", "focal")):
        begin(actor, assignment(directory, method=method))
        outcomes.append(report(actor)["outcome"])
    assert outcomes[0]["metrics"] == outcomes[2]["metrics"] != outcomes[1]["metrics"]


def test_an_attempt_goes_on_from_the_newest_whole_checkpoint(
    actor: CalibrationTrainable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_SECONDS", 0.0)  # an epoch a report
    given = replace(assignment(tmp_path), checkpoint_seconds=0.0)
    begin(actor, given)
    assert [report(actor)["rows"][0]["epoch"] for _ in range(2)] == [1, 2]
    # The second attempt tore its file; the third takes the first one's.
    (tmp_path / "attempt-2").mkdir()
    (tmp_path / "attempt-2" / "last.pt").write_bytes((tmp_path / "attempt-1" / "last.pt").read_bytes()[:-100])
    begin(actor, replace(given, attempt=3))
    found = report(actor)
    assert [row["epoch"] for row in found["rows"]] == [1, 2, 3] and found["outcome"]["state"] == "complete"
    log = (tmp_path / "attempt-3" / "log").read_text()
    assert "resumed from attempt-1 after epoch 2" in log and log.count("epoch=") == 1
    assert [path.name for path in attempts_in(tmp_path)] == ["attempt-3", "attempt-2", "attempt-1"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": {"name": "mbls", "weight": 1e30}}, "Diverged: loss is"),
        ({"data": {"name": "parquet", "path": "/nowhere.parquet"}, "digest": "0" * 64}, "/nowhere.parquet"),
    ],
)
def test_a_failure_is_an_outcome_with_its_reason(
    actor: CalibrationTrainable, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    begin(actor, assignment(tmp_path, **settings))
    outcome = report(actor)["outcome"]
    assert outcome["state"] == "failed" and said in outcome["reason"]
    assert "Traceback" in (tmp_path / "attempt-1" / "log").read_text()
    assert "epoch" not in outcome
    begin(actor, assignment(tmp_path / "next"))
    assert report(actor)["outcome"]["state"] == "complete"


def test_a_trainable_of_one_method_for_ones_own_tuner() -> None:
    cls = trainable_for("focal")
    assert cls.__name__ == "FocalTrainable"
    made = cls.__new__(cls)
    made.setup({"data": "digits", "model": "mlp", "method.gamma": 2.0, "epochs": 2})
    first, last = made.step(), made.step()
    assert first["epoch"] == 1 and not first["done"] and "ts_ece" not in first
    assert last["done"] and {"accuracy", "ece", "ts_ece"} <= set(last)
