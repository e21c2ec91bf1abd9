"""Upload a model to MLflow and register it as a version, once."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as library_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from study.answer.said import Answer
from study.registry.model_card import Facts, card, metadata, shown
from study.registry.names import ExportError
from study.registry.registered_model import (
    load_registered,
    predict_registered,
    refuse_code,
    rows_of,
)
from study.registry.verification import RETRIES, NotVerified, missing_database
from study.registry.verify import (
    CARD,
    PROBABILITIES,
    RECORD,
    SAME_PATH_LIMIT,
    WORDS,
    first_line,
    tag_value,
)
from study.store.driver_lock import export_lock
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.tracking.client import (
    PREFIX,
    driver_problem,
    environment,
    pages,
    s3_problem,
    what_happened,
)
from study.tracking.locations import local_folder, present_location, upload
from study.tracking.registered import (
    ARTIFACTS,
    differences,
    digests_of,
    facts_of,
    recorded_digests,
    unfinished,
)
from trainables.loading.cache import Split
from trainables.outputs.classifier import Classifier

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.models import ModelSignature

DESCRIPTION = (
    "Classifiers trained for calibrated probabilities. The page of a version describes the model,"
    " its training and its metrics, and says whether it applies a temperature. Check a version with"
    " `calstudy verify`."
)


RESTORE = (
    "Restore it from a backup, or delete it in MLflow; then export again. Nothing was registered or"
    " moved."
)


@dataclass(frozen=True)
class Candidate:
    """A model that can be registered, with its facts. answer: that names it, for its card.
    vocabulary: the file of its words, of texts."""

    classifier: Classifier
    split: Split
    probs: np.ndarray  # [N, K] float32, of the validation split; [R, K] of its positions
    difference: float
    record: TrialRecord
    facts: Facts
    answer: Answer | None = None
    vocabulary: Path | None = None

    @property
    def tags(self) -> dict[str, str]:
        """The facts as tags of its version."""
        return {PREFIX + key: tag_value(value) for key, value in self.facts.items()}


def save(candidate: Candidate, name: str, directory: Path) -> None:
    """Write an MLflow model: the graph without pickle, and what `verify` and a reader need."""
    import mlflow.pytorch
    from mlflow.models import infer_signature

    samples = candidate.split.images
    # torch.export takes a batch of one for a model of one sample.
    two = samples[torch.arange(2) % len(samples)]
    example = rows_of(two, ())
    columns = candidate.facts.get("columns", ())
    outputs = candidate.probs[np.arange(2) % len(samples)]
    if candidate.split.positions is not None:
        with torch.inference_mode():
            outputs = candidate.classifier(two).numpy()
    try:
        mlflow.pytorch.save_model(
            candidate.classifier,
            str(directory),
            serialization_format="pt2",
            input_example=example,
            signature=infer_signature(example, outputs),
            metadata=metadata(candidate.facts),
            # Without these, MLflow loads the model in another process to infer them.
            pip_requirements=[
                f"{library}=={library_version(library)}" for library in ("mlflow", "torch", "numpy")
            ],
        )
    except Exception as error:  # whatever torch makes of a network it cannot trace
        raise ExportError(
            f"{candidate.record.name}: cannot be exported as a graph ({first_line(error)})"
        ) from None
    if columns:
        _name_columns(directory, infer_signature(rows_of(two, columns), outputs))
    try:
        found = predict_registered(load_registered(directory), samples, candidate.split.positions)
    except NotVerified as error:  # an operation of the user's own, say
        raise ExportError(f"{candidate.record.name}: cannot be exported: {error}") from None
    difference = float(np.abs(found.astype(np.float64) - candidate.probs).max())
    if not difference <= SAME_PATH_LIMIT:
        raise ExportError(
            f"{candidate.record.name}: the exported graph differs from the model by"
            f" {difference:.2g} in probability (at most {SAME_PATH_LIMIT:g}); a network"
            " with control flow of its own cannot be exported"
        )
    (directory / RECORD).parent.mkdir()
    (directory / RECORD).write_text(json.dumps(candidate.facts, indent=1))
    if candidate.vocabulary is not None:
        shutil.copyfile(candidate.vocabulary, directory / WORDS)
    (directory / CARD).write_text(card(candidate.facts, name, candidate.answer))
    np.savez(
        directory / PROBABILITIES, probs=candidate.probs, labels=candidate.split.labels.numpy()
    )


def _name_columns(directory: Path, signature: ModelSignature) -> None:
    """Make a saved model one of named columns: MLflow exports a graph with arrays alone."""
    from mlflow.models import Model

    model: Any = Model.load(str(directory))
    model.signature = signature
    for key in ("artifact_path", "serving_input_path"):  # of the example, an array
        (directory / model.saved_input_example_info[key]).unlink()
    model.saved_input_example_info = None
    model.save(str(directory / "MLmodel"))


# ---- the server ----------------------------------------------------------------------------------


@contextmanager
def server(tracking_uri: str) -> Iterator[MlflowClient]:
    """A client; server errors become an ExportError. Sets nothing global: no active run, no URI."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    missing = missing_database(tracking_uri)
    if missing is not None:
        raise ExportError(
            f"no MLflow database at {missing}", "Create it with `calstudy sync`, then export again."
        )
    try:
        with environment(MLFLOW_HTTP_REQUEST_TIMEOUT="120", **{RETRIES: "3"}):
            yield MlflowClient(tracking_uri, tracking_uri)
    except Exception as error:
        known = isinstance(error, (MlflowException, SQLAlchemyError, RequestException))
        if known or s3_problem(error) or driver_problem(error):
            raise ExportError(what_happened(error, tracking_uri)) from None
        raise


def run_of(client: MlflowClient, study: StudyFolder, record: TrialRecord) -> Run:
    """The trial's run; the oldest if there are duplicates."""
    experiments = [experiment.experiment_id for experiment in pages(client.search_experiments)]
    of_trial = f"tags.`{PREFIX}id` = '{study.id}' and tags.`{PREFIX}trial` = '{record.name}'"
    runs = client.search_runs(
        experiments, of_trial, max_results=1, order_by=["attributes.start_time ASC"]
    )
    if not runs:
        raise ExportError(
            f"{record.name} of '{study.spec.name}' has no run in MLflow yet",
            f"Create it with `{study.command('sync')}`, then export again.",
        )
    return runs[0]


def version_at(client: MlflowClient, name: str, alias: str) -> ModelVersion | None:
    """The version that the alias points to."""
    from mlflow.exceptions import MlflowException

    try:
        aliases = client.get_registered_model(name).aliases
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    if alias not in aliases:
        return None
    return client.get_model_version(name, aliases[alias])


def find_version(client: MlflowClient, name: str, tags: dict[str, str]) -> ModelVersion | None:
    """The version of this trial's model: same weights, predictions, serving and confirmation.

    The first of them, where exports that did not see each other registered several at once.
    """
    of_trial = " and ".join(
        f"tags.`{PREFIX}{key}` = '{tags[PREFIX + key]}'" for key in ("id", "trial")
    )
    # The card includes the confirmation: more seeds or test results make another version.
    wanted = facts_of({**tags, ARTIFACTS: ""})
    found = [
        version
        for version in client.search_model_versions(of_trial)
        if version.name == name and facts_of(version.tags) == wanted
    ]
    return min(found, key=lambda version: int(version.version), default=None)


def register_once(
    client: MlflowClient, study: StudyFolder, run: Run, candidate: Candidate, name: str
) -> tuple[ModelVersion, bool]:
    """The version of this model, and whether it is new. What a killed export of the trial left is
    marked as deleted: MLflow shows it no more, and its files stay.

    Raises ExportError if the version exists and its files are not those registered.
    """
    with export_lock(study.directory) as alone:
        version = find_version(client, name, candidate.tags)
        is_new = False
        if version is None:
            version, is_new = _register(client, study, run, candidate, name)
        if not is_new:
            _refuse_changed(client, study, version)
        if alone:
            trial = candidate.record.name
            for model in unfinished(client, run.info.experiment_id, study.id, trial):
                client.delete_logged_model(model.model_id)
    return version, is_new


def _refuse_changed(client: MlflowClient, study: StudyFolder, version: ModelVersion) -> None:
    """Raise ExportError unless the version's files are those registered. Loads none of them."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    uri = client.tracking_uri
    named = f"{version.name}/{version.version} exists, and"
    recorded = client.get_model_version_download_uri(version.name, version.version)
    place = present_location(recorded, study.name, uri, study.directory.parent)
    with tempfile.TemporaryDirectory(prefix="calstudy-") as temporary:
        folder = local_folder(place)
        if folder is None:
            repository: Any = get_artifact_repository(place, tracking_uri=uri)
            folder = Path(repository.download_artifacts("", temporary))
        elif not folder.is_dir():
            raise ExportError(f"{named} its files are not at {folder}", RESTORE)
        try:
            problems = differences(folder, recorded_digests(version.tags))
            if not problems:
                refuse_code(folder)
                return
        except OSError as error:
            raise ExportError(f"{named} its files cannot be compared ({error})", RESTORE) from None
        except NotVerified as error:
            raise ExportError(f"{named} {error} {RESTORE}") from None
    raise ExportError(f"{named} its files are not those registered: {'; '.join(problems)}", RESTORE)


def _register(
    client: MlflowClient, study: StudyFolder, run: Run, candidate: Candidate, name: str
) -> tuple[ModelVersion, bool]:
    """Save the model, upload it to the run, register it. A kill between leaves it unregistered."""
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory(prefix="calstudy-") as folder:
        directory = Path(folder) / "model"
        save(candidate, name, directory)
        logged = _upload(client, study, run, candidate, directory)
        digests = digests_of(directory)
    try:
        client.create_registered_model(name, description=DESCRIPTION)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = client.create_model_version(
        name,
        # Not models:/ID: the SQL registry would look that up on the global tracking server.
        logged.artifact_location,
        run.info.run_id,
        tags={**candidate.tags, ARTIFACTS: tag_value(digests)},
        description=shown(card(candidate.facts, name, candidate.answer)),
        model_id=logged.model_id,
    )
    # Exports through mounts without common locks each make a version: the first one stays.
    first = find_version(client, name, candidate.tags)
    if first is None or int(first.version) == int(version.version):
        return version, True
    client.delete_model_version(name, version.version)
    client.delete_logged_model(logged.model_id)
    return first, False


def _upload(
    client: MlflowClient, study: StudyFolder, run: Run, candidate: Candidate, directory: Path
) -> LoggedModel:
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model

    facts = candidate.facts
    logged = client.create_logged_model(
        run.info.experiment_id,
        name=facts["trial"].replace("/", "-"),
        source_run_id=run.info.run_id,
        params={path: str(value) for path, value in facts["params"].items()},
        tags={PREFIX + key: facts[key] for key in ("study", "id", "trial")},
        model_type="classifier",
    )
    model = Model.load(str(directory))
    model.model_id = model.model_uuid = logged.model_id
    model.run_id = run.info.run_id
    model.artifact_path = logged.artifact_location
    model.save(str(directory / "MLmodel"))
    upload(study, client.tracking_uri, logged.artifact_location, [directory])
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(
        run.info.run_id, [LoggedModelOutput(logged.model_id, step=candidate.record.epoch or 0)]
    )
    return logged


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the libraries' messages; errors still raise."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
