"""The projection against MLflow itself: its database read with plain SQL, its server behind a line that fails."""

import base64
import http.client
import json
import os
import pickle
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Metric, Run

from study.schema.spec import StudySpec, spec_from_mapping
from study.schema.uris import TrackingError, embedded_tracking, public_uri, resolve_uri, scrub
from study.store.ledger import LedgerError, driver_lock
from study.store.study import Study
from study.store.trials import TrialRecord
from study.tracking import store, writer
from study.tracking.projection import Projection, SyncReport, sync

BEGAN = 1_700_000_000.0
PASSWORD = "hunter2-very-secret"


@dataclass
class Study:
    """A Study whose trials are said instead of read."""

    directory: Path
    spec: StudySpec
    trials: list[TrialRecord]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def recorded(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "created": "2023-11-14T22:13:20+00:00",
            "data_digest": "d1635",
            "sizes": {"train": 1151, "validation": 287, "test": 359},
            "versions": {"torch": "2.15.0", "git_commit": "c0ffee"},
        }

    def records(self) -> dict[str, list[TrialRecord]]:
        labels = [variant.label for variant in self.spec.variants]
        return {label: [record for record in self.trials if record.label == label] for label in labels}

    lacking = Study.lacking

    def files(self, record: TrialRecord) -> Path:
        return self.directory / "trials" / record.name / f"attempt-{record.attempt}"


def make_spec(**changes: Any) -> StudySpec:
    plain = {"name": "small", "data": "digits", "model": "mlp", "methods": ["focal", "label_smoothing"], "trials": 2}
    return spec_from_mapping({**plain, **changes}, "small.yaml")


def make_study(storage: Path, **changes: Any) -> Study:
    """Two trials of each method, one of them failed."""
    directory = storage / "small"
    directory.mkdir(parents=True, exist_ok=True)
    study = Study(directory, make_spec(**changes), [])
    for label, path in (("focal", "method.gamma"), ("label_smoothing", "method.epsilon")):
        study.trials += [complete(study, label, number, {path: 0.25 * (number + 1)}) for number in range(2)]
    failed = TrialRecord("focal", 1, "failed", {"method.gamma": 0.5}, attempt=2, reason="loss is nan at epoch 3")
    study.trials[1] = replace(failed, started=BEGAN + 10, ended=BEGAN + 12)
    return study


def complete(study: Study, label: str, number: int, params: dict[str, Any], epochs: int = 3) -> TrialRecord:
    """A complete trial whose history lies where it would."""
    rows = [
        {"epoch": epoch, "time": BEGAN + 10 * number + epoch, "seconds": 1.0, "train_loss": 1 / epoch, "ece": 0.1}
        for epoch in range(1, epochs + 1)
    ]
    metrics = {"accuracy": 0.9, "ece": 0.05 + number / 100, "ts_ece": 0.04}
    times = {"seconds": float(epochs), "started": BEGAN + 10 * number, "ended": BEGAN + 10 * number + epochs + 0.5}
    record = TrialRecord(label, number, "complete", params, metrics, 1, epochs, **times)
    study.files(record).mkdir(parents=True, exist_ok=True)
    (study.files(record) / "history.json").write_text(json.dumps(rows))
    return record


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database MLflow has made: it takes seconds, so each test takes a copy."""
    storage = tmp_path_factory.mktemp("migrated")
    sync(make_study(storage, trials=1), embedded_tracking(storage))
    with closing(sqlite3.connect(storage / "mlflow.db")) as database:
        assert database.execute("select count(*) from runs").fetchone() == (5,)
        for table in ("metrics", "latest_metrics", "params", "tags", "runs", "experiment_tags"):
            database.execute(f"delete from {table}")
        database.execute("delete from experiments where experiment_id > 0")
        database.commit()
        database.execute("vacuum")
    return storage / "mlflow.db"


@pytest.fixture
def storage(tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A storage with an empty MLflow in it. The process stands elsewhere, where nothing may be left."""
    shutil.copy(migrated, tmp_path / "mlflow.db")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return tmp_path


def rows(storage: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(storage / "mlflow.db")) as database:
        return database.execute(query).fetchall()


def content(storage: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row that tells of a run."""
    tables = ("runs", "tags", "params", "metrics", "latest_metrics", "experiments")
    return {table: sorted(rows(storage, f"select * from {table}"), key=repr) for table in tables}


def children(client: MlflowClient, study: Study) -> dict[str, list[Run]]:
    """The runs that are not deleted, by trial; the study's own under ''."""
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    found: dict[str, list[Run]] = {}
    for run in client.search_runs([experiment.experiment_id], f"tags.`calstudy.id` = '{study.id}'"):
        found.setdefault(run.data.tags.get("calstudy.trial", ""), []).append(run)
    return found


def in_mlflow_once(client: MlflowClient, study: Study) -> dict[str, Run]:
    """Each finished trial has one run, whole; each metric one point a step."""
    found = children(client, study)
    (parent,) = found.pop("")
    finished = {record.name: record for record in study.trials if record.state != "running"}
    assert {name: len(same) for name, same in found.items()} == dict.fromkeys(finished, 1)
    runs = {name: same[0] for name, same in found.items()}
    for name, run in runs.items():
        record = finished[name]
        assert run.info.status == {"complete": "FINISHED", "failed": "FAILED", "pruned": "KILLED"}[record.state]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        points = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
        for key, history in points.items():
            assert len({point.step for point in history}) == len(history), f"{name} {key} twice at one step"
        if record.state == "complete":
            assert [point.step for point in points["train_loss"]] == list(range(1, (record.epoch or 0) + 1))
            assert {key: run.data.metrics[f"final/{key}"] for key in record.metrics} == record.metrics
    return runs


# ---- where MLflow is -------------------------------------------------------------------------------------------------


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import study.tracking, sys; print(sorted({'mlflow', 'torch', 'ray', 'optuna'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_the_option_comes_first_then_the_spec_then_the_storage() -> None:
    root = Path("/data/studies")
    assert resolve_uri("http://a:1", "http://b:2", root) == "http://a:1"
    assert resolve_uri(None, "http://b:2", root) == "http://b:2"
    assert resolve_uri(None, None, root) == "sqlite:////data/studies/mlflow.db"
    for uri in ("sqlite:////x/y.db", "https://u:p@h/base", "postgresql+psycopg2://u:p@h/db"):
        assert resolve_uri(uri, None, root) == uri


@pytest.mark.parametrize(
    "uri",
    ["sqlite:///mlflow.db", "sqlite://", "sqlite:///:memory:", "mlruns", "./mlruns", "file:///x/mlruns", "htp://x"],
)
def test_what_would_end_up_anywhere_is_refused(uri: str) -> None:
    with pytest.raises(TrackingError, match=r"^tracking: "):
        resolve_uri(None, uri, Path("/data"))


def test_a_relative_database_is_refused_with_the_absolute_one() -> None:
    with pytest.raises(TrackingError, match=rf"--tracking: .* Write sqlite:///{Path.cwd()}/a/b.db\."):
        resolve_uri("sqlite:///a/b.db", None, Path("/data"))


@pytest.mark.parametrize(
    ("uri", "public"),
    [
        ("http://host:5000", "http://host:5000"),
        ("https://maria:p%40ss@host/base?token=t0ken", "https://host/base"),
        ("postgresql://maria:a/b?c#d@host/db", "postgresql://host/db"),
        ("sqlite:////home/maria@work/mlflow.db", "sqlite:////home/maria@work/mlflow.db"),
    ],
)
def test_credentials_are_not_public(uri: str, public: str) -> None:
    assert public_uri(uri) == public


def test_credentials_are_taken_out_of_what_others_say() -> None:
    uri = "https://maria:p%40ss@host/base?token=t0ken"
    text = f'{uri} maria:p%40ss@host p@ss p%40ss t0ken for user "maria" at host'
    assert scrub(text, uri) == 'https://host/base host *** *** *** for user "***" at host'


# ---- what is written -------------------------------------------------------------------------------------------------


def test_a_trial_as_mlflow_has_it(storage: Path) -> None:
    study = make_study(storage)
    client = MlflowClient(embedded_tracking(storage))
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=4, present=0, removed=0)
    runs = in_mlflow_once(client, study)
    run = runs["focal/0000"]
    assert run.info.run_name == "focal/0000"
    assert (run.info.start_time, run.info.end_time) == (int(BEGAN * 1000), int((BEGAN + 3.5) * 1000))
    expected = {"label": "focal", "number": "0", "method": "focal", "method.gamma": "0.25", "optimizer.lr": "0.1"}
    assert expected.items() <= run.data.params.items()
    assert run.data.params["data"] == "digits" and run.data.params["data.validation"] == "0.2"
    points = client.get_metric_history(run.info.run_id, "train_loss")
    found = [(point.step, point.value, point.timestamp) for point in points]
    assert found == [(step, 1 / step, int((BEGAN + step) * 1000)) for step in (1, 2, 3)]
    (final,) = client.get_metric_history(run.info.run_id, "final/ece")
    assert (final.step, final.value, final.timestamp) == (3, 0.05, int((BEGAN + 3.5) * 1000))
    assert run.data.metrics["final/seconds"] == 3.0
    tags = {key: value for key, value in run.data.tags.items() if key.startswith("calstudy.")}
    assert tags.pop("calstudy.metrics").startswith("equal-width bins")
    assert tags == {
        "calstudy.study": "small",
        "calstudy.id": study.id,
        "calstudy.trial": "focal/0000",
        "calstudy.state": "complete",
        "calstudy.attempt": "1",
        "calstudy.data_digest": "d1635",
    }
    failed = runs["focal/0001"]
    assert failed.data.tags["calstudy.reason"] == "loss is nan at epoch 3" and failed.data.metrics == {}
    assert not os.listdir()  # no ./mlruns, no ./mlflow.db


def test_its_study_as_mlflow_has_it(storage: Path) -> None:
    study = make_study(storage, tracking=f"http://maria:{PASSWORD}@host", ledger=f"postgresql://maria:{PASSWORD}@h/db")
    sync(study, embedded_tracking(storage))
    client = MlflowClient(embedded_tracking(storage))
    (parent,) = children(client, study)[""]
    assert (parent.info.run_name, parent.info.status) == ("small", "FINISHED")
    assert (parent.info.start_time, parent.info.end_time) == (int(BEGAN * 1000), int((BEGAN + 13.5) * 1000))
    assert parent.data.params["model"] == "mlp" and parent.data.params["optimizer.lr"] == "0.1"
    assert parent.data.params["objectives"] == "accuracy maximize, ece minimize"
    tags = parent.data.tags
    assert (
        tags["calstudy.methods"] == "focal, label_smoothing"
        and tags["calstudy.versions"] == "torch 2.15.0, git_commit c0ffee"
    )
    assert tags["mlflow.source.git.commit"] == "c0ffee"
    words = client.get_experiment_by_name("small").tags["mlflow.note.content"]
    assert tags["mlflow.note.content"] == words and "accuracy (higher is better) and ece (lower is better)" in words
    client.set_tag(parent.info.run_id, "mlflow.note.content", "as I see it")
    sync(study, embedded_tracking(storage))
    assert client.get_run(parent.info.run_id).data.tags["mlflow.note.content"] == "as I see it"
    artifact = storage / "artifacts" / "small" / parent.info.run_id / "artifacts" / "study.yaml"
    stored = yaml.safe_load(artifact.read_text())
    assert (stored["tracking"], stored["ledger"]) == ("http://host", "postgresql://h/db")
    assert stored["methods"][0]["label"] == "focal" and stored["recorded"]["id"] == study.id
    everything = (storage / "mlflow.db").read_bytes() + artifact.read_bytes()
    assert PASSWORD.encode() not in everything and b"maria" not in everything


def test_a_run_written_at_once_is_what_mlflows_own_calls_make(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are written past MLflow's calls: their rows must be those of its calls."""

    def described(study: Study) -> list[Any]:
        sync(study, embedded_tracking(storage))
        (found,) = rows(
            storage,
            f"select run_uuid from tags where key = 'calstudy.trial' and value = 'focal/0000' "
            f"and run_uuid in (select run_uuid from tags where value = '{study.id}')",
        )
        run_id, volatile = found[0], (found[0], study.id)
        tables = ("runs", "tags", "params", "metrics", "latest_metrics")
        told = [rows(storage, f"select * from {table} where run_uuid = '{run_id}'") for table in tables]
        parent = rows(storage, f"select value from tags where run_uuid = '{run_id}' and key = 'mlflow.parentRunId'")
        text = repr([sorted(of_table, key=repr) for of_table in told])
        for name, value in (("RUN", volatile[0]), ("STUDY", volatile[1]), ("PARENT", parent[0][0])):
            text = text.replace(value, name)
        return sorted(text.split("("))

    at_once = described(make_study(storage))
    fill = writer.StudyRuns._fill

    def by_calls(server: Any, new: list[Any]) -> None:
        for child in new:
            fill(server, server._create(child.name, child.tags, child.started).info.run_id, child)

    monkeypatch.setattr(writer.StudyRuns, "_insert", by_calls)
    assert described(make_study(storage)) == at_once


def test_what_is_no_number_is_left_out(storage: Path) -> None:
    study = make_study(storage)
    history = study.files(study.trials[0]) / "history.json"
    history.write_text(json.dumps([{"epoch": 1, "time": BEGAN, "train_loss": float("nan"), "ece": 0.5}]))
    study.trials[0] = replace(study.trials[0], metrics={"ece": 0.5, "nll": float("inf")}, epoch=1)
    sync(study, embedded_tracking(storage))
    (run,) = children(MlflowClient(embedded_tracking(storage)), study)["focal/0000"]
    assert run.data.metrics == {"ece": 0.5, "final/ece": 0.5, "final/seconds": 3.0}


def test_more_params_and_metrics_than_one_call_takes(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study(storage)
    study.trials = [complete(study, "focal", 0, {f"method.p{index}": index for index in range(150)}, epochs=700)]
    client = MlflowClient(embedded_tracking(storage))
    half_written(client, study, study.trials[0], BEGAN)  # completed by MLflow's calls
    sync(study, embedded_tracking(storage))
    run = in_mlflow_once(client, study)["focal/0000"]
    assert run.data.params["method.p149"] == "149"
    assert rows(storage, "select count(*) from metrics") == [(700 * 3 + 4,)]


# ---- once ------------------------------------------------------------------------------------------------------------


def half_written(client: MlflowClient, study: Study, record: TrialRecord, began: float, **tags: str) -> str:
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


def test_again_changes_nothing(storage: Path) -> None:
    study = make_study(storage)
    sync(study, embedded_tracking(storage))
    before = content(storage)
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=0, present=4, removed=0)
    assert content(storage) == before


def test_a_half_written_run_is_completed(storage: Path) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    run_id = half_written(client, study, study.trials[0], BEGAN)
    some = [Metric("train_loss", 1 / step, int((BEGAN + step) * 1000), step) for step in (1, 2)]
    client.log_batch(run_id, some, [])
    client.log_param(run_id, "method.gamma", "0.25")
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=4, present=0, removed=0)
    assert in_mlflow_once(client, study)["focal/0000"].info.run_id == run_id


@pytest.mark.parametrize("finished", [None, "older", "younger"])
def test_of_twins_the_finished_one_stays_else_the_older(storage: Path, finished: str | None) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    twins = {
        "younger": half_written(client, study, study.trials[0], BEGAN + 1),
        "older": half_written(client, study, study.trials[0], BEGAN),
    }
    if finished:
        client.set_terminated(twins[finished], "FINISHED")
    assert sync(study, embedded_tracking(storage)).removed == 1
    (kept,) = children(client, study)["focal/0000"]
    assert kept.info.run_id == twins[finished or "older"]
    assert sync(study, embedded_tracking(storage)) == SyncReport(written=0, present=4, removed=0)


@pytest.mark.parametrize("change", ["attempt", "attempt, finished", "param"])
def test_a_run_that_tells_of_something_else_is_written_anew(storage: Path, change: str) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    other = {} if change == "param" else {"calstudy.attempt": "7"}
    run_id = half_written(client, study, study.trials[0], BEGAN, **other)
    if change == "param":
        client.log_param(run_id, "method.gamma", "99")
    if change == "attempt, finished":
        client.set_terminated(run_id, "FINISHED")
    sync(study, embedded_tracking(storage))
    run = in_mlflow_once(client, study)["focal/0000"]
    assert run.info.run_id != run_id and run.data.params["method.gamma"] == "0.25"


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
    monkeypatch.setattr(writer, "PAGE", 2)
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


def test_it_does_not_write_beside_a_driver(storage: Path) -> None:
    study = make_study(storage)
    with driver_lock(study.directory), pytest.raises(LedgerError, match="another driver"):
        sync(study, embedded_tracking(storage))


# ---- beside a running study ------------------------------------------------------------------------------------------


def wait_for(true: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def test_it_follows_a_study(storage: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in store.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    told = [study.trials.pop(), study.trials.pop()]
    environment = dict(os.environ)
    with Projection(study, embedded_tracking(storage)) as projection:
        for record in told:
            study.trials.append(record)
            projection.finished(record)
            projection.finished(record)
        wait_for(lambda: client.get_experiment_by_name("small") and len(children(client, study)) == 5)
        assert children(client, study)[""][0].info.status == "RUNNING"
        assert projection.close(True, 20.0) == 0
        assert projection.trouble is None
    in_mlflow_once(client, study)
    assert children(client, study)[""][0].info.status == "FINISHED"
    assert dict(os.environ) == environment and not os.listdir()
    assert capfd.readouterr() == ("", "")


def test_a_study_goes_on_and_ends(storage: Path) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    last = study.trials.pop()
    with Projection(study, embedded_tracking(storage)) as projection:
        projection.close(False, 20.0)
    assert children(client, study)[""][0].info.status == "KILLED"
    with pytest.raises(RuntimeError), Projection(study, embedded_tracking(storage)):
        raise RuntimeError("the study's own")
    study.trials.append(last)
    with Projection(study, embedded_tracking(storage)) as projection:
        assert projection.close(True, 20.0) == 0
    assert children(client, study)[""][0].info.status == "FINISHED"
    in_mlflow_once(client, study)


def test_a_server_that_is_away_holds_nothing_up(storage: Path, caplog: Any, capfd: Any) -> None:
    study = make_study(storage)
    uri = f"http://maria:{PASSWORD}@127.0.0.1:{free_port()}"
    with pytest.raises(TrackingError, match=r"^MLflow at http://127\.0\.0\.1:\d+: Connection refused$"):
        sync(study, uri)
    with Projection(study, uri) as projection:
        begun = time.monotonic()
        projection.finished(study.trials[0])
        assert time.monotonic() - begun < 0.05
        wait_for(lambda: projection.trouble)
        assert projection.close(True, 0.5) == 4
        assert time.monotonic() - begun < 20.0
    assert str(projection.trouble).endswith("Connection refused")
    assert PASSWORD not in caplog.text + "".join(capfd.readouterr()) + str(projection.trouble)


# ---- a server --------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Line:
    """The way to a server: asks for a password, is cut, and loses answers."""

    def __init__(self, port: int) -> None:
        self.cut = False
        self.losing: list[str] = []  # ends of paths: the next answer to such a request is lost
        self.asked: list[str] = []
        line = self

        class Handler(BaseHTTPRequestHandler):
            def forward(self) -> None:
                line.asked.append(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                expected = "Basic " + base64.b64encode(f"maria:{PASSWORD}".encode()).decode()
                if line.cut:
                    self.close_connection = True
                    return
                if self.headers.get("Authorization") != expected:
                    self.send_error(401)
                    return
                server = http.client.HTTPConnection("127.0.0.1", port)
                headers = {key: value for key, value in self.headers.items() if key.lower() != "host"}
                server.request(self.command, self.path, body, headers)
                answer = server.getresponse()
                content = answer.read()
                lost = [end for end in line.losing if self.path.endswith(end)]
                if lost:
                    line.losing.remove(lost[0])
                    self.close_connection = True
                    return
                with suppress(BrokenPipeError):  # who asked may have been killed
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.getheader("Content-Type") or "")
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://maria:{PASSWORD}@127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Iterator[tuple[Path, int]]:
    """A real MLflow server: (the folder of its database, its port)."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    shutil.copy(migrated, folder / "mlflow.db")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        f"{folder}/artifacts",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        wait_for(lambda: answers(port), 120.0)
        yield folder, port
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


@pytest.fixture
def line(server: tuple[Path, int]) -> Iterator[Line]:
    line = Line(server[1])
    yield line
    line.http.shutdown()
    line.http.server_close()


@pytest.mark.slow
def test_a_server_with_a_password_never_tells_it(
    tmp_path: Path, server: tuple[Path, int], line: Line, caplog: Any, capfd: Any
) -> None:
    study = make_study(tmp_path, tracking=line.uri)
    assert sync(study, line.uri) == SyncReport(written=4, present=0, removed=0)
    assert sync(study, line.uri) == SyncReport(written=0, present=4, removed=0)
    in_mlflow_once(MlflowClient(f"http://127.0.0.1:{server[1]}"), study)
    artifacts = [file for file in (server[0] / "artifacts").rglob("study.yaml") if study.id in file.read_text()]
    assert len(artifacts) == 1
    with pytest.raises(TrackingError) as refused:
        sync(study, line.uri.replace(PASSWORD, "wrong-one"))
    assert "401" in str(refused.value) and "wrong-one" not in str(refused.value)
    said = (server[0] / "mlflow.db").read_bytes() + artifacts[0].read_bytes() + (server[0] / "log").read_bytes()
    said += (caplog.text + "".join(capfd.readouterr())).encode()
    assert PASSWORD.encode() not in said and b"maria" not in said


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["runs/create", "runs/log-batch", "runs/update"])
def test_a_lost_answer_makes_no_second_run(tmp_path: Path, server: tuple[Path, int], line: Line, lost: str) -> None:
    study = make_study(tmp_path)
    line.losing = [lost] * 3
    with Projection(study, line.uri) as projection:
        assert projection.close(True, 30.0) == 0
        assert projection.trouble is None
    assert line.losing == []
    in_mlflow_once(MlflowClient(f"http://127.0.0.1:{server[1]}"), study)


def ended(client: MlflowClient, study: Study) -> int:
    """How many trials have a run that has ended."""
    if client.get_experiment_by_name("small") is None:
        return 0
    found = [run for name, same in children(client, study).items() for run in same if name]
    return sum(run.info.status in ("FINISHED", "FAILED") for run in found)


@pytest.mark.slow
def test_a_server_away_then_back(tmp_path: Path, server: tuple[Path, int], line: Line) -> None:
    study, client = make_study(tmp_path), MlflowClient(f"http://127.0.0.1:{server[1]}")
    late = study.trials.pop()
    with Projection(study, line.uri) as projection:
        wait_for(lambda: ended(client, study) == 3)
        line.cut = True
        study.trials.append(late)
        projection.finished(late)
        wait_for(lambda: projection.trouble)
        line.cut = False
        assert projection.close(True, 30.0) == 0
        assert projection.trouble is None
    in_mlflow_once(client, study)
    assert children(client, study)[""][0].info.status == "FINISHED"


@pytest.mark.slow
def test_a_server_that_goes_leaves_the_rest_to_sync(tmp_path: Path, server: tuple[Path, int], line: Line) -> None:
    study, client = make_study(tmp_path), MlflowClient(f"http://127.0.0.1:{server[1]}")
    late = study.trials.pop()
    with Projection(study, line.uri) as projection:
        wait_for(lambda: ended(client, study) == 3)
        line.cut = True
        study.trials.append(late)
        projection.finished(late)
        assert projection.close(True, 2.0) == 1
    line.cut = False
    assert sync(study, line.uri) == SyncReport(written=1, present=3, removed=0)
    in_mlflow_once(client, study)
    assert children(client, study)[""][0].info.status == "FINISHED"


@pytest.mark.slow
def test_killed_at_any_moment_and_synced(tmp_path: Path, server: tuple[Path, int], line: Line) -> None:
    """The process that writes is killed after so many requests, each time a few later."""
    study, client = make_study(tmp_path), MlflowClient(f"http://127.0.0.1:{server[1]}")
    study.trials += [complete(study, "focal", number, {"method.gamma": 1.0}) for number in range(2, 8)]
    code = (
        "import sys, pickle; from study.tracking import sync\n"
        "sync(pickle.loads(bytes.fromhex(sys.stdin.read())), sys.argv[1])"
    )
    told = pickle.dumps(study).hex()
    for requests in (5, 6, 7, 8):
        line.asked.clear()
        process = subprocess.Popen([sys.executable, "-c", code, line.uri], stdin=subprocess.PIPE, text=True)
        assert process.stdin is not None
        process.stdin.write(told)
        process.stdin.close()
        wait_for(lambda enough=requests, at=process: len(line.asked) >= enough or at.poll() is not None, 60.0)
        assert process.poll() is None
        process.kill()
        process.wait()
    assert 0 < sync(study, line.uri).written < 10
    in_mlflow_once(client, study)
    assert sync(study, line.uri) == SyncReport(written=0, present=10, removed=0)
