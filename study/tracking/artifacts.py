"""Files and the answer in a study's own run in MLflow. Creates no experiment and no run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from study.schema.uris import TrackingError, public_uri
from study.store.home import check_home
from study.tracking.client import asking, open_existing, pages, search_runs
from study.tracking.descriptions import NOTE, with_answer
from study.tracking.locations import upload
from study.tracking.study_summary import ANSWER, YES, log_values, set_tags
from trainables.problems import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from study.store.study import StudyFolder


def try_to_log(
    study: StudyFolder, files: Sequence[Path], folder: str | None, tracking: str | None
) -> str:
    """Upload files as `log_artifacts` does; returns a line, also if the server is unreachable."""
    try:
        check_home(study)
        uri = study.tracking(tracking)
        log_artifacts(study, uri, files, folder)
    except UserError as error:
        return f"not uploaded to MLflow: {error}"
    what = "1 artifact" if len(files) == 1 else f"{len(files)} artifacts"
    return f"uploaded {what} to the run {study.name} in MLflow at {public_uri(uri)}"


def log_artifacts(
    study: StudyFolder, uri: str, files: Sequence[Path], folder: str | None = None
) -> None:
    """Upload files to the artifacts of the study's run, or a folder there, replacing existing ones.

    Raises TrackingError.
    """
    with asking(uri):
        run = _own_run(open_existing(uri), study)
        if run is not None:
            upload(study, uri, run.info.artifact_uri, files, folder)
    if run is None:
        raise TrackingError(
            f"MLflow at {public_uri(uri)}: no run of this study", "Create it with `calstudy sync`."
        )


def describe(
    study: StudyFolder, uri: str, sentences: Sequence[str], following: Sequence[tuple[str, str]]
) -> None:
    """Put the answer first in the descriptions of run and experiment. Raises TrackingError."""
    with asking(uri):
        client = open_existing(uri)
        run = _own_run(client, study)
        if run is not None:
            experiment = client.get_experiment(run.info.experiment_id)
            text = with_answer(run.data.tags.get(NOTE, ""), sentences, following)
            client.set_tag(run.info.run_id, NOTE, text)
            text = with_answer(experiment.tags.get(NOTE, ""), sentences, following)
            client.set_experiment_tag(experiment.experiment_id, NOTE, text)


def log_answer(
    study: StudyFolder, uri: str, model: str, trial: str, values: Mapping[str, float]
) -> None:
    """Tag the model that the answer names and log its values, as `answer/ece`. Raises
    TrackingError.

    model: empty for none. trial: of this study, whose run is tagged too; empty for none.
    """
    with asking(uri):
        client = open_existing(uri)
        run = _own_run(client, study)
        if run is None:
            return
        experiments = [run.info.experiment_id]
        ours = f"tags.`calstudy.id` = '{study.id}' and tags"
        tagged = pages(client.search_runs, experiments, f"{ours}.`{ANSWER}` = '{YES}'")
        for other in tagged:
            if other.data.tags.get("calstudy.trial") != trial:
                client.delete_tag(other.info.run_id, ANSWER)
        if trial:
            for its in client.search_runs(experiments, f"{ours}.`calstudy.trial` = '{trial}'"):
                set_tags(client, its.info.run_id, its.data.tags, {ANSWER: YES})
        named = {f"answer/{name}": value for name, value in values.items()}
        log_values(client, run.info.run_id, run.data.metrics, named)
        set_tags(client, run.info.run_id, run.data.tags, {ANSWER: model})


def _own_run(client: MlflowClient, study: StudyFolder) -> Run | None:
    """The study's run, the parent of its trials' runs; None if there is none."""
    # By name too, so that the server need not return the trials' runs (METHOD/0007).
    named = f"attributes.run_name = '{study.name}'"
    order = ["attributes.start_time ASC"]
    return next(search_runs(client, study.id, filter_string=named, order_by=order), None)
