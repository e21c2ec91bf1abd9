"""One small artifact written where a study's would lie, and deleted again: `calstudy doctor`."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from study.schema.uris import TrackingError, public_uri
from study.tracking.client import asking, open_client, what_happened
from study.tracking.locations import local_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient


def try_artifact(uri: str, name: str | None) -> tuple[bool, str]:
    """Whether this machine can write an artifact to MLflow and delete it; where, or what is wrong.

    name: of the study. Leaves no run and no experiment. Raises TrackingError if no artifact can be
    written or listed.
    """
    # Once, or boto3 waits five times as long for a host that does not answer.
    with asking(uri, AWS_MAX_ATTEMPTS="1"):
        client = open_client(uri)
        own = None
        if name is not None:
            own = client.get_experiment_by_name(name)
        location = own.artifact_location if own is not None else _root(client)
        folder = local_folder(location)
        if folder is None:
            return _write_and_delete(location, uri)
        return _check(folder, uri, own is not None)


def _root(client: MlflowClient) -> str:
    """The place of artifacts of the server's first experiment, as will be that of new ones.

    No request returns the server's artifact root. A database that was made without a server has a
    folder there.
    """
    first = [
        found.artifact_location
        for found in client.search_experiments(order_by=["creation_time ASC"])
    ]
    return next((location for location in first if local_folder(location) is None), first[0])


def _check(folder: Path, uri: str, is_own: bool) -> tuple[bool, str]:
    """MLflow makes an experiment's folder below the server's root, on the client's machine."""
    if folder.parent.is_dir() and os.access(folder.parent, os.W_OK):
        return True, f"in {folder.parent}"
    fix = "Start the server with --artifacts-destination, or mount that folder here."
    if is_own:
        where = f"its artifacts go to {folder.parent}, which this machine cannot write"
        raise TrackingError(f"MLflow at {public_uri(uri)}: {where}", fix)
    return (
        False,
        (
            f"artifacts may go to {folder.parent}, which this machine cannot write. If a run says"
            f" so: {fix}"
        ),
    )


def _write_and_delete(location: str, uri: str) -> tuple[bool, str]:
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    store = get_artifact_repository(location, tracking_uri=uri)
    folder = f"calstudy-doctor-{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "deleted-again.txt"
        file.write_text("Written by `calstudy doctor`, which deletes it again.\n")
        store.log_artifact(str(file), folder)  # type: ignore[no-untyped-call]
    store.list_artifacts(folder)  # as a download does first
    try:
        store.delete_artifacts(folder)  # type: ignore[no-untyped-call]
        # S3 reports no refused key.
        problem = "it is still there" if store.list_artifacts(folder) else None
    except Exception as error:  # a store may lack deletion, or refuse it
        problem = what_happened(error, uri)
    if problem is None:
        return True, f"one written to {location} and deleted"
    return (
        False,
        f"an artifact could be written but not deleted ({problem}). Remove {location}/{folder}.",
    )
