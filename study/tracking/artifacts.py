"""Files among the artifacts of a study's own run in MLflow. Nothing else is made there: no experiment and no run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from study.schema.uris import TrackingError, public_uri, sqlite_file
from study.store.study import check_home
from study.tracking.store import environment, open_store, what_happened
from trainables.fields import UserError

if TYPE_CHECKING:
    from study.store.study import Study


def try_to_log(study: Study, files: Sequence[Path], folder: str | None, tracking: str | None) -> str:
    """`log_artifacts` to the study's MLflow, and a line on it: a server that is away costs that and nothing else."""
    try:
        check_home(study)
        uri = study.tracking(tracking)
        log_artifacts(study, uri, files, folder)
    except UserError as error:
        return f"not in MLflow: {error}"
    what = "an artifact" if len(files) == 1 else f"{len(files)} artifacts"
    return f"in MLflow at {public_uri(uri)}, {what} of the run {study.spec.name}"


def log_artifacts(study: Study, uri: str, files: Sequence[Path], folder: str | None = None) -> None:
    """Put files among the artifacts of the study's run, or a folder of them, in place of those of their names.

    Raises TrackingError.
    """
    database = sqlite_file(uri)
    if database is not None and not database.is_file():
        raise TrackingError(f"MLflow at {public_uri(uri)}: there is no such database.")
    with environment():
        try:
            run = _own_run(study, uri)
            if run is not None:
                repository = _repository(run, uri)
                for file in files:
                    repository.log_artifact(str(file), folder)
        except Exception as error:  # whatever a server, a driver or a network has to say
            raise TrackingError(what_happened(error, uri)) from None
    if run is None:
        raise TrackingError(f"MLflow at {public_uri(uri)}: it has no run of this study; `calstudy sync` makes it.")


def _own_run(study: Study, uri: str) -> Any:
    """The study's run, which its trials name as their parent; None where there is none."""
    from mlflow.entities import ViewType

    store = open_store(uri, study.directory.parent / "artifacts")
    experiment = store.get_experiment_by_name(study.spec.name)
    if experiment is None:
        return None
    # By its name too: of the trials' runs, which are METHOD/0007, a server need not tell.
    wanted = f"tags.`calstudy.id` = '{study.id}' and attributes.run_name = '{study.spec.name}'"
    found = store.search_runs(
        [experiment.experiment_id], wanted, ViewType.ACTIVE_ONLY, 1, ["attributes.start_time ASC"]
    )
    return found[0] if found else None


def _repository(run: Any, uri: str) -> Any:
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    return get_artifact_repository(run.info.artifact_uri, tracking_uri=uri)
