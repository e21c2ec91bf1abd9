"""What is read of a study: what was written, alike from a database and its server;
looking changes nothing."""

import math
from pathlib import Path

import pytest
from mlflow import MlflowClient

from study.schema.uris import TrackingError, embedded_tracking
from study.store.study import StudyFolder
from study.tracking import client as mlflow_client
from study.tracking import histories
from study.tracking.histories import Points
from study.tracking.projection import sync
from study.tracking.reader import TrackedRun, read_runs
from tests.study.tracking.line import Line
from tests.study.tracking.studies import children, make_study


def test_runs_as_they_were_written(storage: Path) -> None:
    study, uri = make_study(storage), embedded_tracking(storage)
    sync(study, uri)
    (first,) = children(MlflowClient(uri), study)["label_smoothing/0001"]
    once_more = first.data.metrics["train_loss"]
    MlflowClient(uri).log_metric(first.info.run_id, "train_loss", once_more, timestamp=1, step=2)
    runs = {run.trial: run for run in read_runs(uri, study.id)}
    assert set(runs) == {"", *(record.name for record in study.told)}
    assert [(runs[name].status, runs[name].ended) for name in ("", "focal/0001")] == [
        ("FINISHED", True),
        ("FAILED", True),
    ]
    points = {name: run.points or {} for name, run in runs.items()}
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
    assert run.last == {"seconds": 1.0, "train_loss": 1 / 3, "ece": 0.1}
    assert run.params["method.gamma"] == "0.25"
    of_one = points["focal/0000"]
    assert of_one["train_loss"] == of_one["ece"] == Points(3, 3)
    assert of_one["final/ece"] == Points(1, 1)
    assert points["label_smoothing/0001"]["train_loss"] == Points(count=4, steps=3)
    assert read_runs(uri, "another") == []


@pytest.mark.parametrize("there", [False, True])
def test_looking_makes_no_database_and_no_table(tmp_path: Path, there: bool) -> None:
    file = tmp_path / "mlflow.db"
    if there:
        file.touch()
    with pytest.raises(TrackingError, match="no such table" if there else "no such database"):
        read_runs(embedded_tracking(tmp_path), "any")
    assert [(found, found.read_bytes()) for found in tmp_path.iterdir()] == [(file, b"")] * there


@pytest.fixture
def served(tmp_path: Path, line: Line) -> StudyFolder:
    """A study of five runs on a server, one with a point too many."""
    study = make_study(tmp_path)
    sync(study, line.uri)
    client = MlflowClient(line.uri)
    (run,) = children(client, study)["label_smoothing/0001"]
    client.log_metric(run.info.run_id, "ece", 0.5, timestamp=1, step=2)
    return study


@pytest.mark.slow
def test_a_server_tells_what_its_database_does(
    served: StudyFolder,
    mlflow_server: tuple[Path, int],
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also page by page, if answers are lost, if there are more points than an answer may have, and
    if the server knows one metric of one run a request only."""
    told = read_runs(embedded_tracking(mlflow_server[0]), served.id)
    assert len(told) == 5
    assert sum(points.count for run in told for points in (run.points or {}).values()) > 30

    def read() -> list[TrackedRun]:
        return read_runs(line.uri, served.id)

    assert read() == told
    assert not [path for path in line.asked if "/get-history?" in path]
    line.losing = ["/runs/search", "/runs/search", *(run.run_id for run in told)]
    assert read() == told and len(line.losing) < len(told)
    line.losing = []
    with monkeypatch.context() as patch:
        patch.setattr(mlflow_client, "PAGE", 2)
        patch.setattr(histories, "RUNS_A_REQUEST", 2)
        assert read() == told
    with monkeypatch.context() as patch:
        patch.setattr(histories, "MOST_POINTS", 3)
        assert read() == told
    before = len(line.asked)
    line.absent = ["get-history-bulk"]
    assert read() == told
    assert [path for path in line.asked[before:] if "/get-history?" in path]


@pytest.mark.slow
def test_histories_are_of_as_many_trials_as_are_asked_for(served: StudyFolder, line: Line) -> None:
    for count, expected in ((0, 0), (2, 2), (math.inf, 4)):
        runs = read_runs(line.uri, served.id, count)
        assert len([run for run in runs if run.trial and run.points is not None]) == expected
        assert all(run.params for run in runs if run.trial)
    again = [
        {run.trial for run in runs if run.points is not None}
        for runs in (read_runs(line.uri, served.id, 2) for _ in range(2))
    ]
    assert again[0] == again[1]


def test_a_sample_is_the_study_s_own() -> None:
    """The same whatever the order, and nearly the same with one trial less."""
    names = [f"focal/{number:04d}" for number in range(1000)]
    sample = histories.drawn(names, "a study", 200)
    assert len(sample) == 200 and sample == histories.drawn(reversed(names), "a study", 200)
    assert sample != histories.drawn(names, "another", 200)
    assert histories.drawn(names, "a study", 1000) == set(names)
    less = histories.drawn([name for name in names if name != min(sample)], "a study", 200)
    assert len(less) == 200 and len(less - sample) == 1
    halves = [sum(a <= int(name[-4:]) < a + 500 for name in sample) for a in (0, 500)]
    assert min(halves) > 70  # of 100 expected, with a standard deviation of 6
