"""What is written, once: by `sync`, against MLflow's own database read with plain SQL."""

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Metric, Run

from study.schema.errors import LedgerError
from study.schema.uris import embedded_tracking
from study.store.driver_lock import driver_lock
from study.tracking import client as mlflow_client
from study.tracking.projection import SyncReport, sync
from study.tracking.writer import StudyRuns
from tests.study.tracking.studies import (
    BEGAN,
    ToldStudy,
    children,
    complete,
    half_written,
    in_mlflow_once,
    make_study,
)


def rows(storage: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(storage / "mlflow.db")) as database:
        return database.execute(query).fetchall()


def content(storage: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row that tells of a run."""
    tables = (
        "runs",
        "tags",
        "params",
        "metrics",
        "latest_metrics",
        "experiments",
        "datasets",
        "inputs",
    )
    return {table: sorted(rows(storage, f"select * from {table}"), key=repr) for table in tables}


# ---- what is written -----------------------------------------------------------------------------


def test_a_trial_as_mlflow_has_it(storage: Path) -> None:
    study = make_study(storage)
    client = MlflowClient(embedded_tracking(storage))
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=4, present=0, removed=0)
    runs = in_mlflow_once(client, study)
    run = runs["focal/0000"]
    assert run.info.run_name == "focal/0000"
    assert (run.info.start_time, run.info.end_time) == (
        int(BEGAN * 1000),
        int((BEGAN + 3.5) * 1000),
    )
    expected = {
        "label": "focal",
        "number": "0",
        "method": "focal",
        "method.gamma": "0.25",
        "optimizer.lr": "0.1",
    }
    assert expected.items() <= run.data.params.items()
    assert run.data.params["data"] == "digits" and run.data.params["data.validation"] == "0.2"
    points = client.get_metric_history(run.info.run_id, "train_loss")
    found = [(point.step, point.value, point.timestamp) for point in points]
    assert found == [(step, 1 / step, int((BEGAN + step) * 1000)) for step in (1, 2, 3)]
    (final,) = client.get_metric_history(run.info.run_id, "final/ece")
    assert (final.step, final.value, final.timestamp) == (0, 0.05, int((BEGAN + 3.5) * 1000))
    assert run.data.metrics["final/seconds"] == 3.0
    tags = {key: value for key, value in run.data.tags.items() if key.startswith("calstudy.")}
    assert tags.pop("calstudy.metrics").startswith("equal-width bins")
    assert tags == {
        "calstudy.study": "small",
        "calstudy.id": study.id,
        "calstudy.trial": "focal/0000",
        "calstudy.state": "complete",
        "calstudy.attempt": "1",
        "calstudy.epoch": "3",
        "calstudy.front": "yes",
        "calstudy.knee": "yes",
        "calstudy.data_digest": "d1635",
    }
    failed = runs["focal/0001"]
    assert (
        failed.data.tags["calstudy.reason"] == "loss is nan at epoch 3"
        and failed.data.metrics == {}
    )
    assert not os.listdir()  # no ./mlruns, no ./mlflow.db


def test_its_study_as_mlflow_has_it(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study(
        storage, tracking="postgresql://maria@host/mlflow", result="best_nll", precision="auto"
    )
    sync(study, embedded_tracking(storage))
    client = MlflowClient(embedded_tracking(storage))
    (parent,) = children(client, study)[""]
    assert (parent.info.run_name, parent.info.status) == ("small", "FINISHED")
    assert (parent.info.start_time, parent.info.end_time) == (
        int(BEGAN * 1000),
        int((BEGAN + 13.5) * 1000),
    )
    assert parent.data.metrics["front_size"] == 2.0
    assert parent.data.params["model"] == "mlp" and parent.data.params["optimizer.lr"] == "0.1"
    assert parent.data.params["objectives"] == "accuracy maximize, ece minimize"
    assert parent.data.params["precision"] == "float32" and "capture" not in parent.data.params
    assert parent.data.params["deterministic"] == "false"
    tags = parent.data.tags
    assert (
        tags["calstudy.methods"] == "focal, label_smoothing"
        and tags["calstudy.versions"] == "torch 2.15.0, git_commit c0ffee"
    )
    assert tags["mlflow.source.git.commit"] == "c0ffee"
    words = client.get_experiment_by_name("small").tags["mlflow.note.content"]
    assert (
        tags["mlflow.note.content"] == words
        and "accuracy (higher is better) and ece (lower is better)" in words
    )
    assert "Each result is the epoch with the best nll on the validation split" in words
    client.set_tag(parent.info.run_id, "mlflow.note.content", "as I see it")
    sync(study, embedded_tracking(storage))
    assert client.get_run(parent.info.run_id).data.tags["mlflow.note.content"] == "as I see it"
    artifact = storage / "artifacts" / "small" / parent.info.run_id / "artifacts" / "study.yaml"
    stored = yaml.safe_load(artifact.read_text())
    assert stored["tracking"] == "postgresql://host/mlflow"
    assert stored["methods"][0]["label"] == "focal" and stored["recorded"]["id"] == study.id
    everything = (storage / "mlflow.db").read_bytes() + artifact.read_bytes()
    assert b"maria" not in everything


def data_of(run: Run) -> tuple[str, str, dict[str, int], dict[str, Any], dict[str, str]]:
    """The one data set of a run: its name, digest, sizes, settings and tags."""
    (found,) = run.inputs.dataset_inputs
    dataset, tags = found.dataset, {tag.key: tag.value for tag in found.tags}
    return (
        dataset.name,
        dataset.digest,
        json.loads(dataset.profile),
        json.loads(dataset.source),
        tags,
    )


def test_its_data_set_is_the_input_of_every_run(storage: Path) -> None:
    study = make_study(storage)
    digest = 64 * "d"  # MLflow takes 36 characters
    study = replace(study, recorded=replace(study.recorded, data_digest=digest))
    sync(study, embedded_tracking(storage))
    client = MlflowClient(embedded_tracking(storage))
    runs = {name: run for name, (run,) in children(client, study).items()}
    assert set(runs) == {
        "",
        "focal/0000",
        "focal/0001",
        "label_smoothing/0000",
        "label_smoothing/0001",
    }
    for run in runs.values():
        name, digest, sizes, settings, tags = data_of(run)
        assert (name, digest, sizes) == (
            "digits",
            36 * "d",
            {"train": 1151, "validation": 287, "test": 359},
        )
        assert (settings["validation"], tags) == (0.2, {"mlflow.data.context": "training"})
        assert run.data.tags["calstudy.data_digest"] == 64 * "d"


def test_runs_of_before_data_sets_were_logged_stay_and_their_study_gets_its_own(
    storage: Path,
) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    sync(study, embedded_tracking(storage))
    with closing(sqlite3.connect(storage / "mlflow.db")) as database:
        for table in ("inputs", "input_tags", "datasets"):
            database.execute(f"delete from {table}")
        database.commit()
    before = {name: runs[0].info.run_id for name, runs in children(client, study).items()}
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=0, present=4, removed=0)
    after = children(client, study)
    assert {name: runs[0].info.run_id for name, runs in after.items()} == before
    assert data_of(after.pop("")[0])[0] == "digits"
    assert not any(run.inputs.dataset_inputs for runs in after.values() for run in runs)
    in_mlflow_once(client, study)


def test_what_is_no_number_is_left_out(storage: Path) -> None:
    study = make_study(storage)
    history = study.files(study.told[0]) / "history.json"
    history.write_text(
        json.dumps([{"epoch": 1, "time": BEGAN, "train_loss": float("nan"), "ece": 0.5}])
    )
    study.told[0] = replace(
        study.told[0], metrics={"accuracy": 0.9, "ece": 0.5, "nll": float("inf")}, epoch=1
    )
    sync(study, embedded_tracking(storage))
    (run,) = children(MlflowClient(embedded_tracking(storage)), study)["focal/0000"]
    assert run.data.metrics == {
        "ece": 0.5,
        "final/accuracy": 0.9,
        "final/ece": 0.5,
        "final/seconds": 3.0,
        "cost/cpu_hours": 3 / 3600,
    }


def test_more_params_and_metrics_than_one_call_takes(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(storage)
    study.told[:] = [
        complete(study, "focal", 0, {f"method.p{index}": index for index in range(150)}, epochs=700)
    ]
    sync(study, embedded_tracking(storage))
    run = in_mlflow_once(MlflowClient(embedded_tracking(storage)), study)["focal/0000"]
    assert run.data.params["method.p149"] == "149"
    assert rows(storage, "select count(*) from metrics") == [(700 * 3 + 5 + 2,)]  # and of the study


# ---- once ----------------------------------------------------------------------------------------


def test_again_changes_nothing(storage: Path) -> None:
    study = make_study(storage)
    sync(study, embedded_tracking(storage))
    before = content(storage)
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=0, present=4, removed=0)
    assert content(storage) == before


def test_a_half_written_run_is_completed(storage: Path) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    run_id = half_written(client, study, study.told[0], BEGAN)
    some = [Metric("train_loss", 1 / step, int((BEGAN + step) * 1000), step) for step in (1, 2)]
    client.log_batch(run_id, some, [])
    client.log_param(run_id, "method.gamma", "0.25")
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=4, present=0, removed=0)
    run = in_mlflow_once(client, study)["focal/0000"]
    assert run.info.run_id == run_id and data_of(run)[0] == "digits"


def test_of_twins_the_finished_one_stays_else_the_older(storage: Path) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    kept = {}
    finished_of = zip((0, 2, 3), (None, "older", "younger"), strict=True)  # complete trials
    for number, finished in finished_of:
        record = study.told[number]
        twins = {
            "younger": half_written(client, study, record, BEGAN + 1),
            "older": half_written(client, study, record, BEGAN),
        }
        if finished:
            client.set_terminated(twins[finished], "FINISHED")
        kept[record.name] = twins[finished or "older"]
    assert sync(study, embedded_tracking(storage)).removed == 3
    found = children(client, study)
    assert {name: [run.info.run_id for run in found[name]] for name in kept} == {
        name: [run_id] for name, run_id in kept.items()
    }
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=0, present=4, removed=0)


def test_a_run_that_tells_of_something_else_is_written_anew(storage: Path) -> None:
    """Of another attempt, which may have ended, or with another parameter."""
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    first, second, third = (study.told[number] for number in (0, 2, 3))
    other = {"calstudy.attempt": "7"}
    stale = {
        record.name: half_written(client, study, record, BEGAN, **other)
        for record in (first, second)
    }
    client.set_terminated(stale[second.name], "FINISHED")
    stale[third.name] = half_written(client, study, third, BEGAN)
    client.log_param(stale[third.name], "method.epsilon", "99")
    sync(study, embedded_tracking(storage))
    runs = in_mlflow_once(client, study)
    for record in (first, second, third):
        (path,) = record.params
        run = runs[record.name]
        assert run.info.run_id != stale[record.name]
        assert run.data.params[path] == str(record.params[path])


def test_twin_parents_become_one_with_all_children(storage: Path) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    sync(study, embedded_tracking(storage))
    (parent,) = children(client, study)[""]
    client.set_terminated(parent.info.run_id, "RUNNING")
    older = client.create_run(parent.info.experiment_id, 1000, {"calstudy.id": study.id}, "small")
    sync(study, embedded_tracking(storage))
    in_mlflow_once(client, study)
    assert children(client, study)[""][0].info.run_id == older.info.run_id


def test_a_study_of_the_same_name_is_another(storage: Path) -> None:
    first, second = make_study(storage), make_study(storage)
    sync(first, embedded_tracking(storage))
    assert sync(second, embedded_tracking(storage)).written == 4
    for study in (first, second):
        in_mlflow_once(MlflowClient(embedded_tracking(storage)), study)


def test_more_runs_than_a_page_are_found(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_client, "PAGE", 2)
    study = make_study(storage)
    sync(study, embedded_tracking(storage))
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=0, present=4, removed=0)


def test_what_a_user_deleted_comes_back(storage: Path) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    sync(study, embedded_tracking(storage))
    client.delete_run(children(client, study)["focal/0000"][0].info.run_id)
    assert sync(study, embedded_tracking(storage)).written == 1
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    sync(study, embedded_tracking(storage))
    in_mlflow_once(client, study)


def test_the_studys_run_ends_though_its_ledger_is_away(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(storage)
    runs = StudyRuns(study, embedded_tracking(storage))
    runs.open()
    runs.resume()

    def away(study: ToldStudy) -> None:
        raise LedgerError("the ledger /mount/ledger.log is missing")

    monkeypatch.setattr(ToldStudy, "records", away)
    runs.end(True)
    (parent,) = children(MlflowClient(embedded_tracking(storage)), study)[""]
    assert parent.info.status == "FINISHED"


def test_it_does_not_write_beside_a_driver(storage: Path) -> None:
    study = make_study(storage)
    with driver_lock(study.directory), pytest.raises(LedgerError, match="another calstudy process"):
        sync(study, embedded_tracking(storage))
