"""Files among the artifacts of a study's own run in MLflow. Nothing else is made there: no experiment and no run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from study.schema.uris import TrackingError, public_uri
from study.store.study import check_home
from study.tracking.client import environment, open_existing, what_happened
from trainables.fields import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

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
    with environment():
        try:
            client = open_existing(uri)
            run_id = _own_run(client, study)
            for file in files if run_id else ():
                client.log_artifact(run_id, str(file), folder)
        except TrackingError:
            raise
        except Exception as error:  # whatever a server, a driver or a network has to say
            raise TrackingError(what_happened(error, uri)) from None
    if run_id is None:
        raise TrackingError(f"MLflow at {public_uri(uri)}: it has no run of this study; `calstudy sync` makes it.")


def _own_run(client: MlflowClient, study: Study) -> str | None:
    """The study's run, which its trials name as their parent; None where there is none."""
    experiment = client.get_experiment_by_name(study.spec.name)
    if experiment is None:
        return None
    # By its name too: of the trials' runs, which are METHOD/0007, a server need not tell.
    wanted = f"tags.`calstudy.id` = '{study.id}' and attributes.run_name = '{study.spec.name}'"
    order = ["attributes.start_time ASC"]
    found = client.search_runs([experiment.experiment_id], wanted, max_results=1, order_by=order)
    return found[0].info.run_id if found else None
