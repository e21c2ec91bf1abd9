"""Studies whose trials are said instead of trained, and what MLflow must then have of them."""

import json
import time
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from study.schema.reading import spec_from_mapping
from study.store.recorded import Recorded
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from tests.patience import patient
from tests.study.made import trials_of

BEGAN = 1_700_000_000.0


@dataclass(frozen=True)
class ToldStudy(StudyFolder):
    """Its trials are said instead of read from a ledger."""

    told: list[TrialRecord] = field(default_factory=list)

    def records(self) -> Trials:
        return trials_of(self.told).under(self.labels)


def make_study(storage: Path, **changes: Any) -> ToldStudy:
    """Two trials of each method, one of them failed."""
    directory = storage / "small"
    directory.mkdir(parents=True, exist_ok=True)
    plain = {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["focal", "label_smoothing"],
        "trials": 2,
    }
    spec = spec_from_mapping({**plain, **changes}, "small.yaml")
    recorded = Recorded(
        id=uuid.uuid4().hex,
        created="2023-11-14T22:13:20+00:00",
        data_digest="d1635",
        sizes={"train": 1151, "validation": 287, "test": 359},
        serves="temperature",
        majority=0.1,
        temperature_fit="temperature",
        versions={"torch": "2.15.0", "git_commit": "c0ffee"},
        meaning=spec.meaning(),
    )
    study = ToldStudy.of(directory, spec, recorded)
    assert isinstance(study, ToldStudy)
    for label, path in (("focal", "method.gamma"), ("label_smoothing", "method.epsilon")):
        study.told.extend(
            complete(study, label, number, {path: 0.25 * (number + 1)}) for number in range(2)
        )
    failed = TrialRecord(
        "focal", 1, "failed", {"method.gamma": 0.5}, attempt=2, reason="loss is nan at epoch 3"
    )
    study.told[1] = replace(failed, started=BEGAN + 10, ended=BEGAN + 12)
    return study


def complete(
    study: ToldStudy, label: str, number: int, params: dict[str, Any], epochs: int = 3
) -> TrialRecord:
    """A complete trial whose history lies where it would."""
    rows = [
        {
            "epoch": epoch,
            "time": BEGAN + 10 * number + epoch,
            "seconds": 1.0,
            "train_loss": 1 / epoch,
            "ece": 0.1,
        }
        for epoch in range(1, epochs + 1)
    ]
    metrics = {"accuracy": 0.9, "ece": 0.05 + number / 100, "ts_ece": 0.04}
    times = {
        "seconds": float(epochs),
        "started": BEGAN + 10 * number,
        "ended": BEGAN + 10 * number + epochs + 0.5,
    }
    record = TrialRecord(label, number, "complete", params, metrics, 1, epoch=epochs, **times)
    study.files(record).mkdir(parents=True, exist_ok=True)
    (study.files(record) / "history.json").write_text(json.dumps(rows))
    return record


def children(client: MlflowClient, study: ToldStudy) -> dict[str, list[Run]]:
    """The runs that are not deleted, by trial; the study's own under ''."""
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    found: dict[str, list[Run]] = {}
    for run in client.search_runs([experiment.experiment_id], f"tags.`calstudy.id` = '{study.id}'"):
        found.setdefault(run.data.tags.get("calstudy.trial", ""), []).append(run)
    return found


def in_mlflow_once(client: MlflowClient, study: ToldStudy) -> dict[str, Run]:
    """Each finished trial has one run, whole; each metric one point a step."""
    found = children(client, study)
    (parent,) = found.pop("")
    finished = {record.name: record for record in study.told if record.state != "running"}
    assert {name: len(same) for name, same in found.items()} == dict.fromkeys(finished, 1)
    runs = {name: same[0] for name, same in found.items()}
    for name, run in runs.items():
        record = finished[name]
        assert (
            run.info.status
            == {"complete": "FINISHED", "failed": "FAILED", "pruned": "KILLED"}[record.state]
        )
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        points = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
        for key, history in points.items():
            assert len({point.step for point in history}) == len(history), (
                f"{name} {key} twice at one step"
            )
        if record.state == "complete":
            assert [point.step for point in points["train_loss"]] == list(
                range(1, (record.epoch or 0) + 1)
            )
            assert {
                key: run.data.metrics[f"final/{key}"] for key in record.metrics
            } == record.metrics
    return runs


def half_written(
    client: MlflowClient, study: ToldStudy, record: TrialRecord, began: float, **tags: str
) -> str:
    """What a driver leaves that is killed between two calls."""
    experiment = client.get_experiment_by_name("small")
    experiment_id = experiment.experiment_id if experiment else client.create_experiment("small")
    known = {
        "calstudy.id": study.id,
        "calstudy.trial": record.name,
        "calstudy.state": record.state,
        "calstudy.attempt": str(record.attempt),
    }
    run = client.create_run(experiment_id, int(began * 1000), {**known, **tags}, record.name)
    return str(run.info.run_id)


def wait_for(true: Any, seconds: float = 30.0) -> None:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < patient(seconds), "it did not come to pass"
        time.sleep(0.02)
