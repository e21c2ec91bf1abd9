"""What is read of a study: what was written, alike from a database and its server;
looking changes nothing."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from study.schema.uris import TrackingError, embedded_tracking
from study.tracking import client as mlflow_client
from study.tracking.projection import sync
from study.tracking.reader import Points, read_runs
from tests.study.tracking.line import Line
from tests.study.tracking.studies import children, make_study


def test_runs_as_they_were_written(storage: Path) -> None:
    study, uri = make_study(storage), embedded_tracking(storage)
    sync(study, uri)
    (first,) = children(MlflowClient(uri), study)["label_smoothing/0001"]
    once_more = first.data.metrics["train_loss"]
    MlflowClient(uri).log_metric(first.info.run_id, "train_loss", once_more, timestamp=1, step=2)
    runs = {run.trial: run for run in read_runs(uri, "small", study.id)}
    assert set(runs) == {"", *(record.name for record in study.told)}
    assert [(runs[name].status, runs[name].ended) for name in ("", "focal/0001")] == [
        ("FINISHED", True),
        ("FAILED", True),
    ]
    run = runs["focal/0000"]
    assert (run.tags["state"], run.tags["attempt"], run.tags["data_digest"]) == (
        "complete",
        "1",
        "d1635",
    )
    assert (
        run.final == {"accuracy": 0.9, "ece": 0.05, "ts_ece": 0.04, "seconds": 3.0}
        and run.tested == {}
    )
    assert run.points["train_loss"] == run.points["ece"] == Points(3, 3) and run.points[
        "final/ece"
    ] == Points(1, 1)
    assert runs["label_smoothing/0001"].points["train_loss"] == Points(count=4, steps=3)
    assert read_runs(uri, "small", "another") == read_runs(uri, "another", study.id) == []


def test_a_lost_answer_is_asked_for_again(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, uri = make_study(storage), embedded_tracking(storage)
    sync(study, uri)
    real, asked = MlflowClient.get_metric_history, []

    def lossy(client: MlflowClient, run_id: str, key: str) -> Any:
        asked.append((run_id, key))
        if asked.count((run_id, key)) < 3:
            raise ConnectionError("lost")
        return real(client, run_id, key)

    whole = read_runs(uri, "small", study.id)
    monkeypatch.setattr(MlflowClient, "get_metric_history", lossy)
    assert read_runs(uri, "small", study.id) == whole and len(asked) == 3 * len(set(asked))


@pytest.mark.parametrize("there", [False, True])
def test_looking_makes_no_database_and_no_table(tmp_path: Path, there: bool) -> None:
    file = tmp_path / "mlflow.db"
    if there:
        file.touch()
    with pytest.raises(TrackingError, match="no such table" if there else "no such database"):
        read_runs(embedded_tracking(tmp_path), "small", "any")
    assert [(found, found.read_bytes()) for found in tmp_path.iterdir()] == [(file, b"")] * there


@pytest.mark.slow
def test_a_server_tells_what_its_database_does(
    tmp_path: Path, server: tuple[Path, int], line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also page by page."""
    study = make_study(tmp_path)
    sync(study, line.uri)
    told = read_runs(line.uri, "small", study.id)
    assert len(told) == 5
    assert told == read_runs(embedded_tracking(server[0]), "small", study.id)
    monkeypatch.setattr(mlflow_client, "PAGE", 2)
    assert read_runs(line.uri, "small", study.id) == told
