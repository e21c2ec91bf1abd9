"""A copy of a study that was trained once: it goes on, and nothing of it reaches the original."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from mlflow import MlflowClient

from study.schema.uris import embedded_tracking
from tests import shared
from tests.shared import made_once
from tests.study.command_line import here
from tests.study.trained import copy_of, digits

pytestmark = pytest.mark.slow


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_goes_on_and_the_original_stays(tmp_path: Path) -> None:
    before = content(digits())
    copy = copy_of(digits(), tmp_path / "copy")
    where = ("--storage", copy)
    assert "note" not in here("audit", "small", *where)
    here("run", copy / "small.yaml", "--trials", 3, *where)
    assert "uploaded 1 artifact to the run small" in here(
        "report", "small", "--bootstrap", 0, *where
    )
    here("audit", "small", *where)
    # MLflow's own client knows no other place than the recorded one.
    client = MlflowClient(embedded_tracking(copy))
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    run = client.create_run(experiment.experiment_id)
    client.log_text(run.info.run_id, "new", "new.txt")
    for old in client.search_runs([experiment.experiment_id]):
        client.log_text(old.info.run_id, "old", "old.txt")
    assert len(list(copy.rglob("new.txt"))) == 1 and len(list(copy.rglob("old.txt"))) == 8
    assert content(digits()) == before
    assert str(digits()).encode() in before[digits() / "small/study.yaml"]


def test_those_who_ask_at_once_have_it_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "FOLDER", [tmp_path])
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "half").touch()  # of one that was killed
    all_there, made = Barrier(4), []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "whole").touch()

    def ask(_: int) -> list[str]:
        all_there.wait(60)
        return [path.name for path in made_once("some", make).iterdir()]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [["whole"]] * 4
    assert made == [tmp_path / "some"]
