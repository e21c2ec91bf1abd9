"""A storage moved: where its artifacts are, whoever kept the database."""

from pathlib import Path

import pytest

from study.tracking.locations import present_location


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A storage that was at /before."""
    (tmp_path / "artifacts" / "small").mkdir(parents=True)
    return tmp_path


def test_what_moved_with_its_database_is_beside_it(
    moved: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    uri, other = f"sqlite:///{moved / 'mlflow.db'}", tmp_path_factory.mktemp("other")
    now = str(moved / "artifacts" / "small" / "models" / "m-1" / "artifacts")
    for recorded in (
        "/before/artifacts/small/models/m-1/artifacts",
        "file:///before/artifacts/small/models/m-1/artifacts",
    ):
        assert present_location(recorded, "small", uri, other) == now
    assert present_location(now, "small", uri, other) == now
    # A link for MLflow's own commands, or another storage in the old place, changes nothing.
    (other / "artifacts" / "small").mkdir(parents=True)
    assert (
        present_location(str(other / "artifacts/small/models/m-1/artifacts"), "small", uri, other)
        == now
    )


def test_what_moved_without_its_database_is_in_the_storage_given(moved: Path) -> None:
    now = str(moved / "artifacts" / "small" / "1" / "artifacts")
    for uri in (
        "sqlite:////elsewhere/mlflow.db",
        "http://127.0.0.1:5000",
        "postgresql://db/mlflow",
    ):
        assert present_location("/before/artifacts/small/1/artifacts", "small", uri, moved) == now


def test_what_did_not_move_stays(moved: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    recorded = str(moved / "artifacts" / "small" / "1" / "artifacts")
    assert present_location(recorded, "small", "http://127.0.0.1:5000", other) == recorded
    assert (
        present_location(recorded, "small", f"sqlite:///{other / 'mlflow.db'}", other) == recorded
    )
    for elsewhere in (
        "s3://bucket/artifacts/small/1",
        "mlflow-artifacts:/1/artifacts",
        "/srv/7/artifacts",
    ):
        assert (
            present_location(elsewhere, "small", f"sqlite:///{moved / 'mlflow.db'}", moved)
            == elsewhere
        )
