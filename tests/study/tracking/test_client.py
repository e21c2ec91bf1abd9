"""What MLflow is told by the environment, and for how long."""

import os
from pathlib import Path

import pytest

from study.tracking.client import ENVIRONMENT, environment, open_client

PRINTS = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"


def test_the_environment_is_the_users_but_for_what_prints_passwords(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    monkeypatch.setenv(PRINTS, "false")
    before = dict(os.environ)
    with environment():
        assert {name: os.environ[name] for name in (*ENVIRONMENT, PRINTS)} == {
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "77",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            PRINTS: "true",
        }
    assert dict(os.environ) == before


def test_a_new_database_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two of MLflow's migrations, it could never be opened again."""
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"

    def killed(self: object, **given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mlflow.MlflowClient.search_experiments", killed)
        with pytest.raises(KeyboardInterrupt):
            open_client(uri)
    assert not (tmp_path / "new" / "mlflow.db").exists()
    assert open_client(uri).search_experiments()[0].name == "Default"
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == [
        ".mlflow.db.lock",
        "mlflow.db",
    ]
