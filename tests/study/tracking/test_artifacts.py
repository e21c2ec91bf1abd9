"""Files into MLflow, read back by MLflow's own client; where there is no place
for it, nothing is made."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from study.schema.errors import TryAgain
from study.schema.uris import TrackingError
from study.tracking.artifacts import log_artifacts, try_to_log
from study.tracking.client import trouble
from tests.study.command_line import here
from tests.study.made import made_study
from tests.study.report_studies import make_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{root / 'mlflow.db'}"
    MlflowClient(uri, uri).create_experiment("small", artifact_location=str(root / "artifacts"))
    return uri


def test_it_is_an_artifact_of_the_studys_own_run_and_takes_the_place_of_the_last(
    uri: str, tmp_path: Path
) -> None:
    client, study = MlflowClient(uri, uri), make_study(tmp_path)
    experiment = client.get_experiment_by_name("small").experiment_id
    runs = [
        client.create_run(experiment, tags={"calstudy.id": of}, run_name=name).info.run_id
        for of, name in ((study.id, "focal/0000"), (study.id, "small"), ("another", "small"))
    ]
    for text in ("first", "second"):
        file = tmp_path / "report.html"
        file.write_text(text)
        log_artifacts(study, uri, [file])
    assert [[found.path for found in client.list_artifacts(run)] for run in runs] == [
        [],
        ["report.html"],
        [],
    ]
    assert Path(client.download_artifacts(runs[1], "report.html")).read_text() == "second"
    study.directory.mkdir()
    said = try_to_log(study, [file.rename(tmp_path / "front.png")], "figures", uri)
    assert said == f"uploaded 1 artifact to the run small in MLflow at {uri}"
    assert [found.path for found in client.list_artifacts(runs[1], "figures")] == [
        "figures/front.png"
    ]


def test_without_a_run_of_the_study_nothing_is_made(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("x")
    with pytest.raises(
        TrackingError, match=r"no run of this study\. Create it with `calstudy sync`"
    ):
        log_artifacts(make_study(tmp_path, "other"), uri, [file])
    assert MlflowClient(uri, uri).get_experiment_by_name("other") is None
    with pytest.raises(TrackingError, match="there is no such database"):
        log_artifacts(make_study(tmp_path), f"sqlite:///{tmp_path / 'none.db'}", [file])
    assert not (tmp_path / "none.db").exists()


def test_a_server_that_is_away_is_said_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        TrackingError, match=r"MLflow at http://127\.0\.0\.1:9: .*refused"
    ) as caught:
        log_artifacts(
            make_study(tmp_path), "http://maria:hunter2@127.0.0.1:9", [tmp_path / "report.html"]
        )
    assert "hunter2" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "again"),
    [
        (
            (
                "HTTPConnectionPool: Max retries exceeded (Caused by NewConnectionError: [Errno"
                " 111] Connection refused)"
            ),
            True,
        ),
        ("API request failed: too many 503 error responses", True),
        ("Read timed out. (read timeout=120)", True),
        ("(sqlite3.OperationalError) database is locked", True),
        ("API request to endpoint failed with error code 401 != 200. Response body: ''", False),
        ("[Errno -2] Name or service not known", False),
    ],
)
def test_another_try_may_find_a_server_that_is_away(said: str, again: bool) -> None:
    assert isinstance(trouble(RuntimeError(said), "http://127.0.0.1:9"), TryAgain) == again


def test_sync_with_a_server_that_is_away_may_be_tried_again(tmp_path: Path) -> None:
    made_study(tmp_path, "small", {"focal": [({"accuracy": 0.9, "ece": 0.1}, [])]})
    said = here(
        "sync", "small", "--storage", tmp_path, "--tracking", "http://127.0.0.1:9", check=75
    )
    assert "MLflow at http://127.0.0.1:9: Connection refused" in said
