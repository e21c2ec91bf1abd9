"""An MLflow to write to: a database of its own for each test, and one server."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from study.schema.uris import embedded_tracking
from study.tracking.projection import sync
from tests.study.tracking.line import Line, answers, free_port
from tests.study.tracking.studies import make_study, wait_for


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database MLflow has made: it takes seconds, so each test takes a copy."""
    storage = tmp_path_factory.mktemp("migrated")
    sync(make_study(storage, trials=1), embedded_tracking(storage))
    with closing(sqlite3.connect(storage / "mlflow.db")) as database:
        assert database.execute("select count(*) from runs").fetchone() == (5,)
        of_runs = (
            "metrics",
            "latest_metrics",
            "params",
            "tags",
            "inputs",
            "input_tags",
            "datasets",
        )
        for table in (*of_runs, "runs", "experiment_tags"):
            database.execute(f"delete from {table}")
        database.execute("delete from experiments where experiment_id > 0")
        database.commit()
        database.execute("vacuum")
    return storage / "mlflow.db"


@pytest.fixture
def storage(tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A storage with an empty MLflow in it. The process stands elsewhere,
    where nothing may be left."""
    shutil.copy(migrated, tmp_path / "mlflow.db")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return tmp_path


def start_server(
    folder: Path, migrated: Path, *artifacts: str, **environment: str
) -> tuple[int, subprocess.Popen[bytes]]:
    """A real MLflow server with its database in a folder: its port, and its process,
    of a session of its own."""
    port = free_port()
    shutil.copy(migrated, folder / "mlflow.db")
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", *artifacts]
    with (folder / "log").open("w") as log:
        # Nothing here is a job.
        env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **environment}
        return port, subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, start_new_session=True, env=env
        )


def end_server(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)  # it waits for the connections a client keeps
    process.wait()


@pytest.fixture(scope="session")
def mlflow_server(
    tmp_path_factory: pytest.TempPathFactory, migrated: Path
) -> Iterator[tuple[Path, int]]:
    """A real MLflow server: (the folder of its database, its port)."""
    folder = tmp_path_factory.mktemp("server")
    port, process = start_server(folder, migrated, "--artifacts-destination", f"{folder}/artifacts")
    try:
        wait_for(lambda: answers(port), 120.0)
        yield folder, port
    finally:
        end_server(process)


@pytest.fixture
def line(mlflow_server: tuple[Path, int]) -> Iterator[Line]:
    line = Line(mlflow_server[1])
    yield line
    line.http.shutdown()
    line.http.server_close()
