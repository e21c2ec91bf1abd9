"""The files of a trial, checked against their digests in the ledger before they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from study.store.history import Row, read_history
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from trainables.files.digest import file_digest, known_digest
from trainables.files.regular import NotAFile
from trainables.machine import in_threads
from trainables.problems import FieldError

if TYPE_CHECKING:
    from trainables.loading.cache import Prepared
    from trainables.model import Model
    from trainables.outputs.classifier import Classifier
    from trainables.outputs.predictions import Predictions

PREDICTIONS = "predictions.npz"
MODEL = "model.pt"
HISTORY = "history.json"
LARGEST = 2**36  # bytes of a trial's file: a sparse one of any size would be digested for days
BACKUP = "restore it from a backup"
MISSING = "is missing"


def file_problem(path: Path, digest: str | None) -> str | None:
    """What is wrong with a file whose sha256 the ledger has; None if nothing."""
    try:
        found = file_digest(path, most=LARGEST)
    except FileNotFoundError:
        return MISSING
    except NotAFile as error:
        return error.found
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return None if found == digest else "has changed (its digest differs from the ledger)"


def checked_file(
    study: StudyFolder, record: TrialRecord, name: str, digests: Mapping[str, str] | None = None
) -> Path:
    """A file of a finished trial's attempt. digests: by name, instead of the record's.

    Raises FieldError if it is missing or altered.
    """
    path = study.files(record) / name
    problem = file_problem(path, (record.digests if digests is None else digests).get(name))
    if problem is None:
        return path
    fix = f"{BACKUP.capitalize()}."
    if name == MODEL and (study.plain.get("keep_models") == "front" or study.recorded.pruned):
        fix = "Only models on the front were kept; choose one of those."
    raise FieldError(record.name, f"{path} {problem}", fix)


def stored_history(study: StudyFolder, record: TrialRecord) -> list[Row]:
    """A finished trial's rows, one per epoch. Raises FieldError if the file is missing or
    altered."""
    return read_history(checked_file(study, record, HISTORY), record.name)


def stored_predictions(study: StudyFolder, record: TrialRecord, keep: bool = False) -> Predictions:
    """A complete trial's predictions on validation. keep: cache them. Raises FieldError if missing
    or altered."""
    from trainables.outputs.predictions import Predictions

    if record.name in study.kept:
        return study.kept[record.name]
    found = Predictions.stored(checked_file(study, record, PREDICTIONS))
    if keep:
        study.kept[record.name] = found
    return found


def equal_models(study: StudyFolder, records: Iterable[TrialRecord]) -> list[list[TrialRecord]]:
    """The complete trials with equal predictions, in order, where there are two or more.

    They are known by the sha256 of predictions.npz, which equal arrays are written with; where the
    ledger has none, by that of the file.
    """
    found: dict[str, list[TrialRecord]] = {}
    for record in records:
        if record.state == "complete":
            digest = record.digests.get(PREDICTIONS) or _digest_of_file(study, record)
            if digest is not None:
                found.setdefault(digest, []).append(record)
    return [several for several in found.values() if len(several) > 1]


def _digest_of_file(study: StudyFolder, record: TrialRecord) -> str | None:
    try:
        return known_digest(study.files(record) / PREDICTIONS)
    except OSError:
        return None


def lost_predictions(study: StudyFolder, records: Iterable[TrialRecord]) -> dict[str, str]:
    """What is wrong with the predictions of complete trials, by name: missing, altered, unreadable.
    Whole ones are absent."""
    finished = [record for record in records if record.state == "complete"]

    def problem(record: TrialRecord) -> str | None:
        return file_problem(study.files(record) / PREDICTIONS, record.digests.get(PREDICTIONS))

    found = in_threads(problem, finished)
    return {record.name: why for record, why in zip(finished, found, strict=True) if why}


def stored_classifier(
    study: StudyFolder, record: TrialRecord, prepared: Prepared
) -> tuple[Classifier, float]:
    """A complete trial's model, on the CPU, and its temperature, fitted on the whole validation
    split.

    The model includes the temperature, in float32, and the whole of a frozen network. Raises
    FieldError if a file is missing or altered, or the weights do not fit.
    """
    import torch

    from trainables.loading.frozen import backbone_of
    from trainables.models.shared.whole_module import network_of
    from trainables.outputs.classifier import Classifier

    validation = stored_predictions(study, record)
    weights = checked_file(study, record, MODEL)
    model = study.config_of(record).model
    backbone = None
    trained_on = prepared
    if model.frozen:
        _check_origin(study, record, model)
        backbone, trained_on = backbone_of(model, prepared)
    inputs = trained_on.input_shape
    with torch.random.fork_rng(devices=[]):
        network = network_of(model, inputs, prepared.num_classes)
    try:
        classifier = Classifier(network, trained_on.mean, trained_on.std, kind=inputs.kind)
        classifier.load(weights)
    except FieldError:
        raise
    except Exception as error:  # whatever torch raises for weights that do not fit
        first = str(error).strip().partition("\n")[0]
        raise FieldError(
            record.name,
            f"{weights} does not fit the network of the study ({first})",
            "Was its code changed?",
        ) from None
    if backbone is not None:
        backbone.network.head = classifier.network.head
        classifier = backbone
    temperature = validation.temperature()
    classifier.temperature.fill_(temperature)
    return classifier, temperature


def _check_origin(study: StudyFolder, record: TrialRecord, model: Model) -> None:
    """Raise FieldError unless the network's weights are those that the study began with."""
    origin = model.origin()
    known = study.recorded.weights
    if origin is not None and known is not None and origin.sha256 not in known:
        found = f"the weights of {origin.name} have changed since it was trained"
        raise FieldError(record.name, found, "Restore their file.")
