"""What MLflow lacks at the end of a finished study: exit code 75, and the next run only uploads
it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from study.engine import run
from study.tracking import projection
from study.tracking.writer import StudyRuns
from tests.shared import with_empty_mlflow
from tests.study.command_line import here, wait_for_tracking, write_spec


def test_the_next_run_only_uploads_what_mlflow_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code was 0, and `audit` found the study RUNNING."""
    write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=1)
    words = ("run", tmp_path / "small.yaml", "--storage", tmp_path / "studies")
    with monkeypatch.context() as broken:
        broken.setattr(projection, "FIRST_PAUSE", 0.05)
        broken.setattr(run, "TRACKING_PATIENCE", 5.0)
        broken.setattr(StudyRuns, "end", _refused)
        with_empty_mlflow(words)
        shown = here(*words, check=75)
        wait_for_tracking()
    sync = f"`calstudy sync small --storage {tmp_path}/studies`"
    assert f"run the same command again, or {sync}" in " ".join(shown.split())
    monkeypatch.setattr(run, "joined", _unexpected)
    # Where nothing listens: a finished study needs no cluster.
    here(*words, "--address", "127.0.0.1:1")
    here("audit", "small", "--storage", tmp_path / "studies")


def test_a_server_that_reads_and_refuses_writes_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each retry opens the runs anew, which was taken for progress: `run` never ended."""
    write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=1)
    for module, name in ((projection, "FIRST_PAUSE"), (run, "TRACKING_PATIENCE")):
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(StudyRuns, "write", _refused)
    shown = here("run", tmp_path / "small.yaml", "--storage", tmp_path / "studies", check=75)
    assert "1 trials are not in MLflow yet" in " ".join(shown.split())


def _refused(*words: object) -> None:
    raise PermissionError("read-only")


@contextmanager
def _unexpected(*words: object) -> Iterator[None]:
    raise AssertionError("no Ray is needed")
    yield
