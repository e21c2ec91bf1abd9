"""The places of artifacts: a moved storage took them along, MLflow's tables name the old ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from study.schema.uris import sqlite_file

if TYPE_CHECKING:
    from study.store.study import StudyFolder


def local_folder(location: str) -> Path | None:
    """The folder of a location that MLflow recorded; None if it is on a server or in a bucket."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location)


def present_location(location: str, name: str, uri: str, storage: Path) -> str:
    """A location that the MLflow at `uri` recorded for the experiment `name`, as it is now.

    A study's artifacts are at STORAGE/artifacts/NAME. They are looked for beside the database,
    where it is the one embedded in a storage; then where they were recorded; then in `storage`.
    """
    recorded = local_folder(location)
    before, found, below = f"{recorded}/".rpartition(f"/artifacts/{name}/")
    if recorded is None or not found:
        return location
    database = sqlite_file(uri)
    folder = Path("artifacts", name)
    if database is not None and (database.parent / folder).is_dir():
        return str(database.parent / folder / below)
    if Path(before, folder).is_dir():
        return location
    return str(storage / folder / below)


def upload(
    study: StudyFolder, uri: str, location: str, files: Iterable[Path], folder: str | None = None
) -> None:
    """Upload files or folders to where a location is now; MLflow's client would remake the old."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    place = present_location(location, study.name, uri, study.directory.parent)
    repository: Any = get_artifact_repository(place, tracking_uri=uri)
    for file in files:
        log = repository.log_artifacts if file.is_dir() else repository.log_artifact
        log(str(file), folder)
