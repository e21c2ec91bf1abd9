"""One small artifact written where a study's artifacts would lie, and deleted again: `calstudy doctor`."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from study.schema.uris import TrackingError, public_uri
from study.tracking.client import environment, open_client, what_happened

if TYPE_CHECKING:
    from mlflow import MlflowClient


def try_artifact(uri: str, name: str | None) -> str | None:
    """Why this machine can write an artifact to an MLflow server but not delete it; None if it can do both.

    name: of the study, whose experiment may lie elsewhere than new ones. Leaves no run and no experiment. Raises
    TrackingError if it cannot write or list.
    """
    folder = f"calstudy-doctor-{uuid.uuid4().hex}"
    # Once, or boto3 waits five times as long for a host that does not answer.
    with environment(AWS_MAX_ATTEMPTS="1"):
        try:
            location = _location(open_client(uri), name)
            local = _local(location)
            if local is None:
                return _write_and_delete(location, uri, folder)
            _check_local(local, uri)
            return None
        except TrackingError:
            raise
        except Exception as error:  # anything a server, a store or a network raises
            raise TrackingError(what_happened(error, uri)) from None


def _location(client: MlflowClient, name: str | None) -> str:
    """Of the study's experiment, else of the server's first one, which lies in its artifact root as new ones will."""
    found = client.get_experiment_by_name(name) if name is not None else None
    location: str = (
        found or client.search_experiments(max_results=1, order_by=["creation_time ASC"])[0]
    ).artifact_location
    return location


def _local(location: str) -> Path | None:
    """The folder that a client writes to itself; None if artifacts go over the network."""
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def _check_local(folder: Path, uri: str) -> None:
    """MLflow makes the folder of an experiment below the server's root, on the machine of the client."""
    if not folder.parent.is_dir() or not os.access(folder.parent, os.W_OK):
        raise TrackingError(
            f"MLflow at {public_uri(uri)}: its artifacts go to {folder.parent}, which this machine cannot write. Start"
            " the server with --artifacts-destination, or mount that folder here."
        )


def _write_and_delete(location: str, uri: str, folder: str) -> str | None:
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    store = get_artifact_repository(location, tracking_uri=uri)
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "deleted-again.txt"
        file.write_text("Written by `calstudy doctor`, which deletes it again.\n")
        store.log_artifact(str(file), folder)
    store.list_artifacts(folder)  # as a download does first
    try:
        store.delete_artifacts(folder)
        problem = "it is still there" if store.list_artifacts(folder) else None  # S3 reports no refused key
    except Exception as error:  # a store may lack deletion, or refuse it
        problem = what_happened(error, uri)
    return problem and f"an artifact could be written but not deleted ({problem}). Remove {location}/{folder}."
