"""A storage with a registered model, moved: everything is read and written in its new place."""

import os
from pathlib import Path

import mlflow.pyfunc
import pytest

from tests.study.command_line import here, write_spec

pytestmark = pytest.mark.slow


def test_a_moved_storage_goes_on_in_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, spec = (
        tmp_path / "old",
        tmp_path / "new",
        write_spec(tmp_path / "small.yaml", trials=1, epochs=1),
    )
    here("run", spec, "--storage", old)
    words = ("export", "small", "--name", "m", "--storage")
    here(*words, old, "--trial", "focal/0000", "--alias", "champion")
    os.rename(old, new)
    storage = ("--storage", new)
    here("verify", "models:/m@champion", *storage)
    assert "uploaded 1 artifact to the run small" in here(
        "report", "small", "--bootstrap", 0, *storage
    )
    assert len(list(new.glob("artifacts/small/*/artifacts/report.html"))) == 1
    assert "already registered: models:/m/1 " in here(*words, new, "--trial", "focal/0000")
    assert "registered models:/m/2 from small/cross_entropy/0000" in here(
        *words, new, "--trial", "cross_entropy/0000"
    )
    here("run", spec, *storage, "--trials", 2)
    here("audit", "small", *storage)
    assert not old.exists()
    # MLflow's own commands need a link in the old place.
    os.symlink(new, old)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{new / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", f"sqlite:///{new / 'mlflow.db'}")
    assert mlflow.pyfunc.load_model("models:/m@champion").predict is not None
    here("verify", "models:/m/2", *storage)
