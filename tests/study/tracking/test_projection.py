"""The projection beside a running study, and MLflow's server behind a line that fails."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from study.schema.uris import TrackingError, embedded_tracking
from study.tracking import client as mlflow_client
from study.tracking import projection as projection_module
from study.tracking.projection import Projection, SyncReport, sync
from study.tracking.writer import StudyRuns
from tests.patience import patient
from tests.study.tracking.line import PASSWORD, Line, free_port
from tests.study.tracking.studies import (
    ToldStudy,
    children,
    complete,
    in_mlflow_once,
    make_study,
    wait_for,
)


def test_importing_it_imports_nothing_heavy() -> None:
    code = (
        "import study.tracking, sys; print(sorted({'mlflow', 'torch', 'ray', 'optuna'} &"
        " set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "[]\n"
    )


def test_it_follows_a_study(
    storage: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in mlflow_client.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    told = [study.told.pop(), study.told.pop()]
    environment = dict(os.environ)
    with Projection(study, embedded_tracking(storage)) as projection:
        for record in told:
            study.told.append(record)
            projection.finished(record)
            projection.finished(record)
        wait_for(
            lambda: client.get_experiment_by_name("small") and len(children(client, study)) == 5
        )
        assert children(client, study)[""][0].info.status == "RUNNING"
        assert projection.close(True, 20.0) == 0
        assert projection.trouble is None
    in_mlflow_once(client, study)
    assert children(client, study)[""][0].info.status == "FINISHED"
    assert dict(os.environ) == environment and not os.listdir()
    assert capfd.readouterr() == ("", "")


def test_a_study_goes_on_and_ends(storage: Path) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    last = study.told.pop()
    with Projection(study, embedded_tracking(storage)) as projection:
        projection.close(False, 20.0)
    assert children(client, study)[""][0].info.status == "KILLED"
    with pytest.raises(RuntimeError), Projection(study, embedded_tracking(storage)):
        raise RuntimeError("the study's own")
    study.told.append(last)
    with Projection(study, embedded_tracking(storage)) as projection:
        assert projection.close(True, 20.0) == 0
    assert children(client, study)[""][0].info.status == "FINISHED"
    in_mlflow_once(client, study)


def test_a_server_that_is_away_holds_nothing_up(
    storage: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(storage)
    uri = f"http://maria:{PASSWORD}@127.0.0.1:{free_port()}"
    with pytest.raises(
        TrackingError, match=r"^MLflow at http://127\.0\.0\.1:\d+: Connection refused\.$"
    ):
        sync(study, uri)
    asked, goes_on, opened = threading.Event(), threading.Event(), StudyRuns.open

    def late(self: StudyRuns) -> None:
        asked.set()
        assert goes_on.wait(patient(60))
        opened(self)

    monkeypatch.setattr(StudyRuns, "open", late)
    with Projection(study, uri) as projection:
        begun = time.monotonic()
        assert asked.wait(patient(60))
        projection.finished(study.told[0])
        assert projection.trouble is None, "a trial that finishes waits for the server"
        goes_on.set()
        wait_for(lambda: projection.trouble)
        assert projection.close(True, 0.5) == 4
        assert time.monotonic() - begun < 60.0  # MLflow's own patience is minutes
    assert str(projection.trouble).endswith("Connection refused")
    assert PASSWORD not in "".join(capfd.readouterr()) + str(projection.trouble)


def test_a_study_that_is_asked_to_stop_waits_less(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal may come while it waits already."""
    monkeypatch.setattr(projection_module, "FAULT_PATIENCE", 0.5)
    study, asked = make_study(storage), threading.Event()
    with Projection(study, f"http://127.0.0.1:{free_port()}", asked.is_set) as projection:
        threading.Timer(0.2, asked.set).start()
        assert projection.close(True, 600.0) == 4  # longer than any test may take


def test_closing_it_again_only_waits(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is ended while its finished study is written leaves the study finished."""
    study, client, written = (
        make_study(storage),
        MlflowClient(embedded_tracking(storage)),
        threading.Event(),
    )
    write = StudyRuns.write
    monkeypatch.setattr(
        StudyRuns, "write", lambda runs, record: written.wait(patient(60)) and write(runs, record)
    )
    with Projection(study, embedded_tracking(storage)) as projection:
        closing = threading.Thread(target=projection.close, args=(True, 60.0))
        closing.start()
        wait_for(projection._closing.is_set)
        threading.Timer(0.2, written.set).start()
        projection.close(False, 60.0)
        closing.join()
    assert children(client, study)[""][0].info.status == "FINISHED"


def test_a_server_sees_no_password_of_another(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the server which the study names; here it is written to another."""
    monkeypatch.setenv("MY_TRACKING", f"http://maria:{PASSWORD}@127.0.0.1:9")
    study = make_study(storage, tracking="MY_TRACKING")
    assert sync(study, embedded_tracking(storage)).written == 4
    told = [path.read_bytes() for path in storage.rglob("*") if path.is_file()]
    assert any(b"MY_TRACKING" in content for content in told)
    assert not any(PASSWORD.encode() in content or b"maria" in content for content in told)


# ---- a server ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.platform
def test_a_server_with_a_password_never_tells_it(
    tmp_path: Path,
    mlflow_server: tuple[Path, int],
    line: Line,
    capfd: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "false")  # even then
    study = make_study(tmp_path, tracking="MY_TRACKING")
    assert sync(study, line.uri) == SyncReport(written=4, present=0, removed=0)
    assert sync(study, line.uri) == SyncReport(written=0, present=4, removed=0)
    in_mlflow_once(MlflowClient(f"http://127.0.0.1:{mlflow_server[1]}"), study)
    artifacts = [
        file
        for file in (mlflow_server[0] / "artifacts").rglob("study.yaml")
        if study.id in file.read_text()
    ]
    assert len(artifacts) == 1
    with pytest.raises(TrackingError) as refused:
        sync(study, line.uri.replace(PASSWORD, "wrong-one"))
    assert "401" in str(refused.value) and "wrong-one" not in str(refused.value)
    said = (
        (mlflow_server[0] / "mlflow.db").read_bytes()
        + artifacts[0].read_bytes()
        + (mlflow_server[0] / "log").read_bytes()
    )
    said += "".join(capfd.readouterr()).encode()
    assert PASSWORD.encode() not in said and b"maria" not in said


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["runs/create", "runs/log-batch", "runs/update"])
@pytest.mark.platform
def test_a_lost_answer_makes_no_second_run(
    tmp_path: Path, mlflow_server: tuple[Path, int], line: Line, lost: str
) -> None:
    study = make_study(tmp_path)
    line.losing = [lost] * 3
    with Projection(study, line.uri) as projection:
        assert projection.close(True, 30.0) == 0
        assert projection.trouble is None
    assert line.losing == []
    in_mlflow_once(MlflowClient(f"http://127.0.0.1:{mlflow_server[1]}"), study)


def ended(client: MlflowClient, study: ToldStudy) -> int:
    """How many trials have a run that has ended."""
    if client.get_experiment_by_name("small") is None:
        return 0
    found = [run for name, same in children(client, study).items() for run in same if name]
    return sum(run.info.status in ("FINISHED", "FAILED") for run in found)


@pytest.mark.slow
@pytest.mark.platform
def test_a_server_away_then_back(
    tmp_path: Path, mlflow_server: tuple[Path, int], line: Line
) -> None:
    study, client = make_study(tmp_path), MlflowClient(f"http://127.0.0.1:{mlflow_server[1]}")
    late = study.told.pop()
    with Projection(study, line.uri) as projection:
        wait_for(lambda: ended(client, study) == 3)
        line.cut = True
        study.told.append(late)
        projection.finished(late)
        wait_for(lambda: projection.trouble)
        line.cut = False
        assert projection.close(True, 30.0) == 0
        assert projection.trouble is None
    in_mlflow_once(client, study)
    assert children(client, study)[""][0].info.status == "FINISHED"


@pytest.mark.slow
def test_a_server_that_goes_leaves_the_rest_to_sync(
    tmp_path: Path, mlflow_server: tuple[Path, int], line: Line
) -> None:
    study, client = make_study(tmp_path), MlflowClient(f"http://127.0.0.1:{mlflow_server[1]}")
    late = study.told.pop()
    with Projection(study, line.uri) as projection:
        wait_for(lambda: ended(client, study) == 3)
        line.cut = True
        study.told.append(late)
        projection.finished(late)
        assert projection.close(True, 2.0) == 1
    line.cut = False
    assert sync(study, line.uri) == SyncReport(written=1, present=3, removed=0)
    in_mlflow_once(client, study)
    assert children(client, study)[""][0].info.status == "FINISHED"


# One that imports, which takes seconds, and its children, which write.
CHILDREN = """
import os, pickle, sys
import mlflow.tracking
from study.tracking.projection import sync

study = pickle.loads(bytes.fromhex(sys.stdin.readline()))
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        sync(study, sys.argv[1])
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
@pytest.mark.platform
def test_killed_at_any_moment_and_synced(
    tmp_path: Path, mlflow_server: tuple[Path, int], line: Line
) -> None:
    """The process that writes is killed after so many requests, each time a few later."""
    study, client = make_study(tmp_path), MlflowClient(f"http://127.0.0.1:{mlflow_server[1]}")
    study.told.extend(
        complete(study, "focal", number, {"method.gamma": 1.0}) for number in range(2, 8)
    )
    command = [sys.executable, "-c", CHILDREN, line.uri]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(pickle.dumps(study).hex() + "\n")
        for requests in (5, 6, 7, 8):
            line.asked.clear()
            process.stdin.write("next\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            there = Path(f"/proc/{child}")
            wait_for(lambda enough=requests: len(line.asked) >= enough, 60.0)
            assert there.exists()
            os.kill(child, signal.SIGKILL)
            wait_for(lambda gone=there: not gone.exists(), 60.0)
        process.stdin.close()
    assert 0 < sync(study, line.uri).written < 10
    in_mlflow_once(client, study)
    assert sync(study, line.uri) == SyncReport(written=0, present=10, removed=0)


FORMS = [
    "",
    "{",
    "null",
    "[1]",
    '[{"epoch": 1e400}]',
    '[{"epoch": 1, "time": "soon"}]',
    "[" * 100_000,
    '[{"epoch": -1}]',
]


def test_a_damaged_history_keeps_no_other_trial_out(storage: Path) -> None:
    study, client = make_study(storage), MlflowClient(embedded_tracking(storage))
    study.told.extend(
        complete(study, "label_smoothing", number, {"method.epsilon": number / 10})
        for number in range(2, len(FORMS) + 1)
    )
    *damaged, whole = (record for record in study.told if record.label == "label_smoothing")
    for record, form in zip(damaged, FORMS, strict=True):
        (study.files(record) / "history.json").write_text(form)
    report = sync(study, embedded_tracking(storage))
    for record, said in zip(damaged, report.damaged, strict=True):
        assert record.name in said and "history.json" in said
    found = children(client, study).keys()
    assert whole.name in found and not found & {record.name for record in damaged}
