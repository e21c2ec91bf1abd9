"""One trial's model into the MLflow registry, and the proof that it is the one measured."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version as library_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from study.registry.model_card import card
from study.registry.verify import (
    CARD,
    PROBABILITIES,
    RECORD,
    TAG,
    NotVerified,
    VerifyReport,
    evaluate,
    first_line,
    predict_registered,
    probabilities_digest,
    tag_value,
    validation_of,
)
from study.schema.uris import scrub, sqlite_file
from study.store.files import stored_classifier, stored_predictions
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables.fields import UserError
from trainables.loading.cache import Split
from trainables.metrics import scores
from trainables.outputs.classifier import Classifier, batches
from trainables.outputs.predictions import Predictions

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.entities.model_registry import ModelVersion

# What the way to the numbers explains, in probability: none where float32 on the CPU was measured; else another
# device, TF32 or bfloat16, and then accuracy as well.
SAME_PATH_LIMIT, OTHER_PATH_LIMIT, ACCURACY_LIMIT = 1e-5, 2e-2, 0.005
LIBRARIES = ("calstudy", "torch", "mlflow", "numpy")
# MLflow's own patience with a server that is away, 7 retries, is four minutes; 3 are a quarter of one.
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
# The registry keeps no more characters of a description.
DESCRIPTION_LIMIT = 5000
DESCRIPTION = (
    "Classifiers that give calibrated probabilities, their temperature inside. Each version tells on its own page what"
    " it is, how it was made and what it scores; `calstudy verify` proves it."
)
ROOT = Path(__file__).resolve().parents[2]


class ExportError(UserError):
    """A model that is not registered: one line that says why, and the mend."""


@dataclass(frozen=True)
class Exported:
    """A registered version. `largest_difference`: in probability, from the predictions the trial stored."""

    name: str
    version: int
    trial: str
    temperature: float
    metrics: dict[str, float | None]  # of the registered probabilities of the validation split
    largest_difference: float
    created: bool  # False: it was there

    @property
    def uri(self) -> str:
        """models:/digits/1"""
        return f"models:/{self.name}/{self.version}"


def export(
    study: Study,
    record: TrialRecord,
    name: str,
    alias: str | None,
    tracking_uri: str,
    confirmed: dict[str, Any] | None = None,
) -> Exported:
    """Register the trial's model as a version of `name`, or find the version it is already; point `alias` to it.

    confirmed: `card.confirmed_facts`, of a trial that is a seed of a confirmation.

    Raises ExportError where the model does not give the probabilities that were measured, or cannot be registered.
    """
    with _quiet(), _server(tracking_uri) as client:
        _check_names(name, alias)
        run = _run_of(client, study, record)
        candidate = _candidate(study, record, confirmed)
        found = _find_version(client, name, candidate.facts)
        version = found or _register(client, run, candidate, name)
        if alias is not None and alias not in version.aliases:
            client.set_registered_model_alias(name, alias, version.version)
    return Exported(
        name=name,
        version=int(version.version),
        trial=record.name,
        temperature=json.loads(version.tags[TAG + "temperature"]),
        metrics=json.loads(version.tags[TAG + "metrics"]),
        largest_difference=candidate.difference,
        created=found is None,
    )


def verify(model_uri: str, tracking_uri: str) -> VerifyReport:
    """Load the version in a fresh process that refuses pickle, predict validation from the data again, and compare."""
    missing = _missing_database(tracking_uri)
    if missing is not None:
        return VerifyReport(model_uri, problem=f"no MLflow database at {missing}; say where with --tracking.")
    environment = {
        **{key: value for key, value in os.environ.items() if key != "MLFLOW_REGISTRY_URI"},
        "MLFLOW_TRACKING_URI": tracking_uri,
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "MLFLOW_DEFAULT_PREDICTION_DEVICE": "cpu",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        RETRIES: os.environ.get(RETRIES) or "3",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    # -P: a file of the user's working directory must not stand in for a library.
    command = [sys.executable, "-P", "-m", "study.registry.verify", model_uri]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return VerifyReport(model_uri, problem=f"the fresh process ended with {done.returncode}: {last}")
    report = VerifyReport.from_json(json.loads(lines[-1]))
    return replace(report, problem=report.problem and scrub(report.problem, tracking_uri))


# ---- the trial, measured again -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Candidate:
    """A model fit to be registered, with all that is said of it."""

    classifier: Classifier
    split: Split
    probs: np.ndarray  # [N, K] float32, of the validation split
    difference: float
    record: TrialRecord
    facts: dict[str, Any]


def _candidate(study: Study, record: TrialRecord, confirmed: dict[str, Any] | None) -> _Candidate:
    """The trial's model with its temperature. Raises ExportError unless it gives what was measured."""
    if record.state != "complete":
        raise ExportError(f"{record.name} is {record.state}; only a complete trial has a model.")
    config = study.config_of(record)
    try:
        prepared, split = validation_of(config.data, config.seed, study.recorded["data_digest"])
    except NotVerified as error:
        raise ExportError(f"{record.name}: {error}") from None
    stored = stored_predictions(study, record, keep=True)
    classifier, temperature = stored_classifier(study, record, prepared)
    with torch.inference_mode():
        logits = torch.cat([classifier.logits(images) for images in batches(split.images)])
        probs = torch.cat([classifier(images) for images in batches(split.images)]).numpy()
    difference = _agreement(record, Predictions(logits, split.labels), stored)
    facts = {
        "study": study.spec.name,
        "id": study.id,
        "trial": record.name,
        "method": study.spec.trial_mapping(record.label)["method"]["name"],
        "params": _searched_values(study, record),
        "config": config.to_mapping(),
        "data_digest": prepared.digest,
        "classes": list(prepared.classes),
        "input_shape": list(prepared.input_shape),
        "num_samples": len(split.labels),
        "temperature": temperature,
        "probabilities_sha256": probabilities_digest(probs),
        "predictions_sha256": record.digests["predictions.npz"],
        "model_sha256": record.digests["model.pt"],
        "metrics": evaluate(probs, split.labels),
        "metrics_of_trial": record.metrics,
        "epoch": record.epoch,
        "device": record.device,
        "versions": {library: library_version(library) for library in LIBRARIES},
        "versions_of_trial": record.versions,
        **({"confirmed": confirmed} if confirmed is not None else {}),
    }
    return _Candidate(classifier, split, probs, difference, record, facts)


def _searched_values(study: Study, record: TrialRecord) -> dict[str, Any]:
    """What the search found for this trial; a confirmation has it fixed in its spec."""
    if study.spec.confirms is None:
        return record.params
    return dict(study.spec.variant(record.label).space.pins)


def _agreement(record: TrialRecord, found: Predictions, stored: Predictions) -> float:
    """The largest difference in probability, before the temperature. Raises ExportError where it is too large."""
    if found.logits.shape != stored.logits.shape or not torch.equal(found.labels, stored.labels):
        raise ExportError(f"{record.name}: its predictions are not of this validation split; not registered.")
    ours, theirs = (each.logits.double().softmax(dim=-1) for each in (found, stored))
    difference = float((ours - theirs).abs().max())
    same_path = record.device == "cpu"
    limit = SAME_PATH_LIMIT if same_path else OTHER_PATH_LIMIT
    if not difference <= limit:
        raise ExportError(
            f"{record.name}: its model, in float32 on the CPU, differs from the predictions the trial stored by "
            f"{difference:.2g} in probability (trained on {record.device}: at most {limit:g}); not registered."
        )
    accuracies = [float(scores.accuracy(each.logits, each.labels)) for each in (found, stored)]
    moved = abs(accuracies[0] - accuracies[1])
    if not same_path and moved > ACCURACY_LIMIT:
        raise ExportError(
            f"{record.name}: its model, in float32 on the CPU, has accuracy {accuracies[0]:.4f}, the predictions the "
            f"trial stored {accuracies[1]:.4f} (at most {ACCURACY_LIMIT:g} apart); not registered."
        )
    return difference


# ---- its files -----------------------------------------------------------------------------------------------------


def _save(candidate: _Candidate, name: str, directory: Path) -> None:
    """An MLflow model in `directory`: the graph without pickle, and what `verify` and its reader need."""
    import mlflow.pytorch
    from mlflow.models import infer_signature

    classifier, images = candidate.classifier, candidate.split.images
    # torch.export takes a batch of one for a model of one image.
    example = images[torch.arange(2) % len(images)].float().numpy()
    outputs = candidate.probs[np.arange(2) % len(images)]
    try:
        mlflow.pytorch.save_model(
            classifier,
            str(directory),
            serialization_format="pt2",
            input_example=example,
            signature=infer_signature(example, outputs),
            # Where they are not given, MLflow loads the model in another process to find them out.
            pip_requirements=[f"{library}=={library_version(library)}" for library in ("mlflow", "torch", "numpy")],
        )
    except Exception as error:  # whatever torch makes of a network it cannot trace
        raise ExportError(f"{candidate.record.name}: cannot be exported as a graph ({first_line(error)}).") from None
    found = predict_registered(directory, images)
    difference = float(np.abs(found.astype(np.float64) - candidate.probs).max())
    if not difference <= SAME_PATH_LIMIT:
        raise ExportError(
            f"{candidate.record.name}: the exported graph differs from the model by {difference:.2g} in probability "
            f"(at most {SAME_PATH_LIMIT:g}); a network with control flow of its own cannot be exported."
        )
    (directory / RECORD).parent.mkdir()
    (directory / RECORD).write_text(json.dumps(candidate.facts, indent=1))
    (directory / CARD).write_text(card(candidate.facts, name))
    np.savez(directory / PROBABILITIES, probs=candidate.probs, labels=candidate.split.labels.numpy())


# ---- the server ----------------------------------------------------------------------------------------------------


@contextmanager
def _server(tracking_uri: str) -> Iterator[MlflowClient]:
    """A client; what the server says is one ExportError. Nothing global is set: no run is active, no URI changed."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    missing = _missing_database(tracking_uri)
    if missing is not None:
        raise ExportError(f"no MLflow database at {missing}. `calstudy sync` makes it, then export again.")
    given = os.environ.get(RETRIES)
    os.environ[RETRIES] = given or "3"
    try:
        yield MlflowClient(tracking_uri, tracking_uri)
    except (MlflowException, SQLAlchemyError) as error:
        raise ExportError(scrub(f"MLflow at {tracking_uri}: {first_line(error)}", tracking_uri)) from None
    finally:
        if given is None:
            del os.environ[RETRIES]


def _missing_database(tracking_uri: str) -> Path | None:
    """The file of an SQLite URI that is not there: MLflow would make an empty one."""
    path = sqlite_file(tracking_uri)
    return None if path is None or path.is_file() else path


def _check_names(name: str, alias: str | None) -> None:
    """Refuse early what the registry would refuse after the model has been uploaded."""
    if not name.strip() or name.startswith("..") or name == "." or set(name) & set("/:@?%"):
        raise ExportError(f"Invalid model name '{name}'. It may not be empty, a path, or hold one of / : @ ? %.")
    if alias is None:
        return
    if not re.fullmatch(r"[\w-]{1,255}", alias):
        raise ExportError(f"Invalid alias '{alias}'. Take at most 255 letters, digits, '_' and '-'.")
    if re.fullmatch(r"latest|v\d+", alias, re.IGNORECASE):
        raise ExportError(f"Invalid alias '{alias}'. MLflow keeps 'latest' and 'v1' to itself.")


def _run_of(client: MlflowClient, study: Study, record: TrialRecord) -> Run:
    """The trial's run, the eldest where there are twins."""
    experiments: list[str] = []
    token = None
    while True:
        page = client.search_experiments(page_token=token)
        experiments += [experiment.experiment_id for experiment in page]
        token = page.token
        if not token:
            break
    of_trial = f"tags.`{TAG}id` = '{study.id}' and tags.`{TAG}trial` = '{record.name}'"
    runs = client.search_runs(experiments, of_trial, max_results=1, order_by=["attributes.start_time ASC"])
    if not runs:
        raise ExportError(
            f"{record.name} of '{study.spec.name}' has no run on the server yet. `calstudy sync {study.spec.name}` "
            "makes it, then export again."
        )
    return runs[0]


def _find_version(client: MlflowClient, name: str, facts: dict[str, Any]) -> ModelVersion | None:
    """The version that is this trial's model already: made from the same weights and predictions, with this card."""
    same = {TAG + key: facts[key] for key in ("id", "trial", "model_sha256", "predictions_sha256")}
    of_trial = " and ".join(f"tags.`{key}` = '{value}'" for key, value in same.items())
    # What a confirmation tells is on its card: once there are more seeds, or figures of test, that is another version.
    confirmed = tag_value(facts["confirmed"]) if "confirmed" in facts else None
    found = [
        version
        for version in client.search_model_versions(of_trial)
        if version.name == name and version.tags.get(TAG + "confirmed") == confirmed
    ]
    return min(found, key=lambda version: int(version.version), default=None)


def _register(client: MlflowClient, run: Run, candidate: _Candidate, name: str) -> ModelVersion:
    """Save the model, upload it as one of the run's, register that. A kill in between leaves a model without a name."""
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory(prefix="calstudy-") as folder:
        directory = Path(folder) / "model"
        _save(candidate, name, directory)
        logged = _upload(client, run, candidate, directory)
    try:
        client.create_registered_model(name, description=DESCRIPTION)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    return client.create_model_version(
        name,
        # Not models:/ID: the SQL registry would look that up on the global tracking server.
        logged.artifact_location,
        run.info.run_id,
        tags={TAG + key: tag_value(value) for key, value in candidate.facts.items()},
        description=card(candidate.facts, name)[:DESCRIPTION_LIMIT],
        model_id=logged.model_id,
    )


def _upload(client: MlflowClient, run: Run, candidate: _Candidate, directory: Path) -> LoggedModel:
    """The model in `directory` as an output of the run."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model

    facts = candidate.facts
    logged = client.create_logged_model(
        run.info.experiment_id,
        name=facts["trial"].replace("/", "-"),
        source_run_id=run.info.run_id,
        params={path: str(value) for path, value in facts["params"].items()},
        tags={TAG + key: facts[key] for key in ("study", "id", "trial")},
        model_type="classifier",
    )
    model = Model.load(str(directory))
    model.model_id = model.model_uuid = logged.model_id
    model.run_id, model.artifact_path = run.info.run_id, logged.artifact_location
    model.save(str(directory / "MLmodel"))
    client.log_model_artifacts(logged.model_id, str(directory))
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(run.info.run_id, [LoggedModelOutput(logged.model_id, step=candidate.record.epoch or 0)])
    return logged


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' notes off the terminal; errors come as exceptions."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
