"""What MLflow is told by the environment, and for how long."""

import os

import pytest

from study.tracking.client import ENVIRONMENT, environment

PRINTS = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"


def test_the_environment_is_the_users_but_for_what_prints_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
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
