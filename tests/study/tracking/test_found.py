"""A study's runs are found by its id, whatever their experiment is called; and a server that never
ends its answer ends no run."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow import MlflowClient

from study.answer.said import Answer
from study.commands import answer as answer_command
from study.schema.uris import TrackingUnavailable, embedded_tracking
from study.tracking import client as client_module
from study.tracking import projection as projection_module
from study.tracking.artifacts import describe, log_answer
from study.tracking.client import within
from study.tracking.projection import Projection, sync
from study.tracking.reader import reach, read_runs
from study.tracking.removal import delete_runs
from study.tracking.writer import StudyRuns
from tests.patience import patient
from tests.study.tracking.studies import make_study

# ---- by their id ---------------------------------------------------------------------------------


def test_an_experiment_with_another_name_holds_the_study_still(storage: Path) -> None:
    study, uri = make_study(storage), embedded_tracking(storage)
    client = MlflowClient(uri)
    late = study.told.pop()
    first = sync(study, uri)
    experiment = client.get_experiment_by_name("small").experiment_id
    client.rename_experiment(experiment, "ours")
    assert sync(study, uri).written == 0
    study.told.append(late)
    again = sync(study, uri)
    assert (again.written, again.present, again.removed) == (1, first.written, 0)
    assert client.get_experiment_by_name("small") is None
    assert len(read_runs(uri, study.id)) == len(study.told) + 1
    describe(study, uri, ["Take it."], [])
    log_answer(study, uri, "focal/0000", "focal/0000", {"ece": 0.1})
    assert "Take it." in client.get_experiment(experiment).tags["mlflow.note.content"]
    assert delete_runs(study, uri) == len(study.told) + 1
    assert client.get_experiment(experiment).lifecycle_stage == "deleted"


def test_a_study_that_was_doubled_is_seen_and_becomes_one(storage: Path) -> None:
    """As earlier versions did where an experiment had been renamed."""
    study, uri = make_study(storage), embedded_tracking(storage)
    client = MlflowClient(uri)
    sync(study, uri)
    (run, *_) = [one for one in read_runs(uri, study.id) if one.trial == "focal/0000"]
    other = client.create_experiment("other")
    tags = dict(client.get_run(run.run_id).data.tags)
    client.create_run(other, tags=tags)
    assert [one.trial for one in read_runs(uri, study.id)].count("focal/0000") == 2
    assert sync(study, uri).removed == 1
    assert [one.trial for one in read_runs(uri, study.id)].count("focal/0000") == 1


def test_a_deleted_experiment_is_restored_with_its_runs(storage: Path) -> None:
    study, uri = make_study(storage), embedded_tracking(storage)
    client = MlflowClient(uri)
    sync(study, uri)
    client.delete_experiment(client.get_experiment_by_name("small").experiment_id)
    assert read_runs(uri, study.id) == []
    sync(study, uri)
    assert len(read_runs(uri, study.id)) == len(study.told) + 1


# ---- one deadline --------------------------------------------------------------------------------


@contextmanager
def dripping() -> Iterator[str]:
    """A server whose answer has a byte now and then, and no end."""
    ended = threading.Event()

    def drip(to: socket.socket) -> None:
        with to, suppress(OSError):
            to.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not ended.wait(0.05):
                to.sendall(b" ")

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()


def test_an_answer_without_end_is_not_waited_for(storage: Path) -> None:
    study = make_study(storage)
    with dripping() as uri:
        with pytest.raises(TrackingUnavailable, match=r"it had not answered after 0\.3 seconds"):
            within(0.3, uri, lambda: reach(uri))
        with Projection(study, uri) as projection:
            assert projection.close(True, 0.3) == len(study.told)
            assert not projection.whole


def test_a_run_that_has_ended_does_not_wait_for_its_answer_in_mlflow(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = make_study(storage)
    monkeypatch.setattr(answer_command, "ANSWER_PATIENCE", 0.3)
    found = Answer(("Take nothing.",), ())
    monkeypatch.setattr("study.answer.answer.answer", lambda results: found)
    with dripping() as uri:
        monkeypatch.setattr(type(study), "tracking", lambda self, option: uri, raising=False)
        assert not answer_command.conclude(SimpleNamespace(study=study), None, shown=False)  # type: ignore[arg-type]
    assert "the answer is not in MLflow" in capsys.readouterr().err


def test_each_request_ends(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `sync`, `audit`, `doctor`, `delete`, `report`: whatever asks a server."""
    study = make_study(storage)
    monkeypatch.setattr(client_module, "ENDS", 0.3)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    began = time.monotonic()
    with dripping() as uri:
        for ask in (
            lambda: sync(study, uri),
            lambda: read_runs(uri, study.id),
            lambda: delete_runs(study, uri),
            lambda: describe(study, uri, ["Take it."], []),
        ):
            with pytest.raises(TrackingUnavailable, match="timed out: no whole answer within"):
                ask()
        with pytest.raises(Exception, match="no whole answer within"):
            reach(uri)
    assert time.monotonic() - began < patient(30)


def test_what_is_done_in_time_is_as_without_a_deadline() -> None:
    assert within(60, "http://x", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(60, "http://x", lambda: 1 // 0)


def test_progress_alone_does_not_keep_a_finished_run(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(storage)
    monkeypatch.setattr(projection_module, "LONGEST_CLOSE", 0.2)

    class Slow(StudyRuns):
        def write(self, record: object) -> bool:
            projection._advanced = time.monotonic() + 3600  # as if it had just told
            gone.wait()
            return True

    gone = threading.Event()
    monkeypatch.setattr(projection_module, "StudyRuns", Slow)
    with Projection(study, embedded_tracking(storage)) as projection:
        assert projection.close(True, 3600) == len(study.told)
    gone.set()
