"""Register one trial's model in MLflow, after checking that it is the model that was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch

from study.answer.choice import Choice
from study.answer.confirmation import search_of
from study.answer.said import Answer
from study.registry.calibrated import calibrator_facts, calibrator_line
from study.registry.model_card import Facts, confirmed_facts, confirmed_floors
from study.registry.names import ExportError, check_names
from study.registry.upload import (
    Candidate,
    quiet,
    register_once,
    run_of,
    server,
    version_at,
)
from study.registry.verification import NotVerified
from study.registry.verify import (
    SAME_PATH_LIMIT,
    metrics_of_probs,
    probabilities_digest,
    validation_of,
)
from study.schema.objective import RAW, TEMPERATURE
from study.schema.temperature import TEMPERATURE_FIT, WITH_PRIOR
from study.store.files import stored_classifier, stored_predictions
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.tracking.client import PREFIX
from study.uncertainty.intervals import LEVEL
from trainables.data.text import Text
from trainables.dataset import Dataset
from trainables.loading.cache import Prepared, load_split
from trainables.loading.frozen import features_of
from trainables.loading.vocabulary import VOCABULARY
from trainables.machine import versions
from trainables.metrics import scores
from trainables.metrics.shared.post_hoc import by_structured
from trainables.outputs.classifier import predicted
from trainables.outputs.predictions import Predictions
from trainables.plain import Value
from trainables.plugins import name_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

# Differences in probability and in accuracy that another device, TF32 or bfloat16 explains.
OTHER_PATH_LIMIT = 2e-2
ACCURACY_LIMIT = 0.005
LIBRARIES = ("calstudy", "torch", "mlflow", "numpy")


@dataclass(frozen=True)
class Exported:
    """A registered version. `largest_difference`: in probability, from the stored predictions.

    temperature: fitted on the validation split; applied unless the version serves RAW.
    """

    name: str
    version: int
    trial: str
    serves: str
    temperature: float
    metrics: dict[str, float | None]  # of the registered probabilities on the validation split
    largest_difference: float
    created: bool  # False: it already existed
    calibrated: str = ""  # what is said of its calibrator, if it has one

    @property
    def uri(self) -> str:
        """models:/digits/1"""
        return f"models:/{self.name}/{self.version}"


def export(
    choice: Choice,
    name: str,
    alias: str | None,
    tracking_uri: str,
    serves: str | None = None,
    answer: Answer | None = None,
    level: float = LEVEL,
    by_hand: str = "",
    calibrator: str | None = None,
) -> Exported:
    """Register the trial's model as a version of `name`, or find that; point `alias` to it.

    serves: TEMPERATURE or RAW; None: as the search says. answer: that names it. level: of the
    card's intervals, for a seed of a confirmation. by_hand: for what objectives, given
    afterwards, its user selected it; for card and tags. calibrator: applied in place of what it
    was selected with. Raises ExportError if the model does not
    reproduce the measured probabilities, or cannot be registered, or if `alias` would lose its
    temperature unasked; as `confirmed_facts` does.
    """
    study = choice.study
    confirmed = {
        "confirmed": confirmed_facts(choice, level),
        "floors": confirmed_floors(choice, level),
        "selected_for": by_hand,
    }
    with quiet(), server(tracking_uri) as client:
        check_names(name, alias)
        if serves is None:
            search = choice.confirmation.search if choice.confirmation else search_of(study)
            serves = search.serves
            if serves == RAW and alias is not None and calibrator is None:
                _check_alias(client, name, alias)
        run = run_of(client, study, choice.record)
        if calibrator is not None and alias is not None:
            _refuse_moving(client, name, alias, calibrator)
        candidate = _candidate(study, choice.record, serves, confirmed, answer, calibrator)
        version, is_new = register_once(client, study, run, candidate, name)
        if alias is not None and alias not in version.aliases:
            client.set_registered_model_alias(name, alias, version.version)
    return Exported(
        name=name,
        version=int(version.version),
        trial=choice.record.name,
        serves=serves,
        temperature=json.loads(version.tags[PREFIX + "temperature"]),
        metrics=json.loads(version.tags[PREFIX + "metrics"]),
        largest_difference=candidate.difference,
        created=is_new,
        calibrated=calibrator_line(candidate.facts),
    )


def _refuse_moving(client: MlflowClient, name: str, alias: str, calibrator: str) -> None:
    """Raise ExportError if the alias points to a version as it was selected."""
    held = version_at(client, name, alias)
    if held is not None and PREFIX + "calibrator" not in held.tags:
        raise ExportError(
            f"alias {alias}: {name}/{held.version} is a model as it was selected, and {calibrator}"
            " was not selected; nothing was registered",
            f"Name another alias, such as {alias}-calibrated.",
        )


def _check_alias(client: MlflowClient, name: str, alias: str) -> None:
    """Raise ExportError if the alias points to a version that applies a temperature."""
    held = version_at(client, name, alias)
    if held is not None and held.tags.get(PREFIX + "serves") == TEMPERATURE:
        raise ExportError(
            f"alias {alias}: {name}/{held.version} applies a temperature and this model would not;"
            " nothing was registered",
            "Move the alias with --raw, or keep a temperature with --temperature.",
        )


# ---- measure the trial again ---------------------------------------------------------------------


def _candidate(
    study: StudyFolder,
    record: TrialRecord,
    serves: str,
    confirmed: Facts,
    answer: Answer | None,
    calibrator: str | None,
) -> Candidate:
    """The model as deployed. confirmed: what its facts say of a confirmation. calibrator: in place
    of what is served.

    Raises ExportError unless it gives the measured probabilities.
    """
    if record.state != "complete":
        raise ExportError(f"{record.name} is {record.state}; only complete trials have a model")
    config = study.config_of(record)
    try:
        digest = study.recorded.data_digest
        prepared, split = validation_of(config.data, config.seed, digest, unturned=True)
    except NotVerified as error:
        raise ExportError(f"{record.name}: {error}") from None
    stored = stored_predictions(study, record, keep=True)
    classifier, temperature = stored_classifier(study, record, prepared)
    if serves == RAW or calibrator is not None:
        classifier.temperature.fill_(1.0)
    calibrated = {}
    if calibrator is not None:
        fitted = by_structured(stored.logits, stored.labels, calibrator)
        classifier.calibrator = fitted
        calibrated = calibrator_facts(stored, calibrator, fitted, serves)
    samples = split.images
    logits_of = classifier.logits
    if config.model.frozen:  # the exported graph, which is asked too, proves them
        features = features_of(config.model, prepared, torch.device("cpu"))
        samples = load_split(features, "validation").images
        logits_of = classifier.network.head
    with torch.inference_mode():
        logits = predicted(logits_of, samples, split.positions)
        probs = classifier.probs(logits).numpy()
    difference = _agreement(record, Predictions(logits, split.labels, by_network=True), stored)
    facts = {
        "study": study.spec.name,
        "id": study.id,
        "trial": record.name,
        "method": name_of(type(study.spec.variant(record.label).method)),
        "params": _searched_values(study, record),
        "config": config.to_mapping(),
        "data_digest": prepared.digest,
        "classes": list(prepared.classes),
        "input_shape": list(prepared.input_shape),
        "num_samples": len(split.labels),
        "serves": serves,
        "objectives": [asdict(objective) for objective in study.objectives],
        "temperature": temperature,
        TEMPERATURE_FIT: WITH_PRIOR,
        "probabilities_sha256": probabilities_digest(probs),
        "predictions_sha256": record.digests["predictions.npz"],
        "model_sha256": record.digests["model.pt"],
        "metrics": metrics_of_probs(probs, split.labels, prepared.also),
        "metrics_of_trial": record.metrics,
        "epoch": record.epoch,
        "device": record.device,
        "versions": versions(LIBRARIES),
        "versions_of_trial": record.versions,
    }
    facts |= _of_samples(config.data, prepared)
    inputs = prepared.input_shape
    if inputs.kind == "image":
        facts["pixels"] = [float(split.images.min()), float(split.images.max())]
    vocabulary = prepared.directory / VOCABULARY if inputs.words else None
    if inputs.marked or study.recorded.groups is not None:
        facts["validation_groups"] = study.recorded.resampled("validation")
    if inputs.are_named:
        facts["columns"] = list(inputs.columns)
    if record.extensions:
        facts["extensions"] = record.extensions
    facts |= {name: found for name, found in confirmed.items() if found} | calibrated
    return Candidate(classifier, split, probs, difference, record, facts, answer, vocabulary)


def _of_samples(data: Dataset, prepared: Prepared) -> Facts:
    """What the samples are, if they are not images alone."""
    facts: dict[str, Value | None] = {}
    inputs = prepared.input_shape
    if inputs.kind != "image":
        facts["kind"] = inputs.kind
    if inputs.marked:
        facts |= {"marked": True, "num_images": prepared.sizes["validation"]}
    if inputs.words:
        facts["vocabulary_sha256"] = prepared.vocabulary
    if isinstance(data, Text):  # else its words are made by other rules than those of `encode`
        facts["keep"] = data.keep
    return facts


def _searched_values(study: StudyFolder, record: TrialRecord) -> Mapping[str, Value]:
    """The trial's searched values; a confirmation has them fixed in its spec."""
    if study.spec.confirms is None:
        return record.params
    return dict(study.spec.variant(record.label).space.pins)


def _agreement(record: TrialRecord, found: Predictions, stored: Predictions) -> float:
    """The largest difference in probability, untempered. Raises ExportError if it is too large."""
    if found.logits.shape != stored.logits.shape or not torch.equal(found.labels, stored.labels):
        raise ExportError(
            f"{record.name}: its predictions are of another validation split; not registered"
        )
    ours, theirs = (each.logits.double().softmax(dim=-1) for each in (found, stored))
    difference = float((ours - theirs).abs().max())
    same_path = record.device == "cpu"
    limit = SAME_PATH_LIMIT if same_path else OTHER_PATH_LIMIT
    if not difference <= limit:
        raise ExportError(
            f"{record.name}: its model, in float32 on the CPU, differs from the stored predictions"
            f" by {difference:.2g} in probability (limit for a trial on {record.device}:"
            f" {limit:g}); not registered"
        )
    accuracies = [float(scores.accuracy(each.logits, each.labels)) for each in (found, stored)]
    moved = abs(accuracies[0] - accuracies[1])
    if not same_path and moved > ACCURACY_LIMIT:
        raise ExportError(
            f"{record.name}: its model, in float32 on the CPU, has accuracy {accuracies[0]:.4f},"
            f" its stored predictions {accuracies[1]:.4f} (limit of the difference:"
            f" {ACCURACY_LIMIT:g}); not registered"
        )
    return difference
