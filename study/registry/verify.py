"""Check that a registered model is the one that was measured: the process that
`study.registry.verification` starts. It reads MLFLOW_TRACKING_URI and prints a VerifyReport."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from study.registry.registered_model import load_registered, predict_registered
from study.registry.verification import (
    Comparison,
    NotVerified,
    VerifyReport,
    parts_of,
    registered_version,
)
from study.schema.errors import SpecError
from study.schema.objective import RAW
from study.store.own_data import moved_with_study
from study.store.study import EXTENSIONS, open_directory
from study.tracking.client import PREFIX, driver_problem, s3_problem
from study.tracking.locations import present_location
from study.tracking.registered import ADDED, ARTIFACTS, differences, recorded_digests
from trainables import data, metrics
from trainables.config import build
from trainables.dataset import Dataset
from trainables.files.digest import file_digest
from trainables.loading.cache import (
    Prepared,
    Split,
    data_digests,
    load_split,
    prepare,
    unturned_digests,
    why_other,
)
from trainables.metrics.binned import equal_mass_index, equal_width_index
from trainables.metrics.shared.structured import NAMES, tensors_digest
from trainables.plugins import changed_files, use_extensions
from trainables.problems import joined

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

# Our files among the model's artifacts.
RECORD = "calstudy/record.json"
PROBABILITIES = "calstudy/validation_probs.npz"
CARD = "calstudy/card.md"
WORDS = "calstudy/vocabulary.txt"

SAME_PATH_LIMIT = 1e-5  # in probability
METRIC_LIMIT = 1e-6
TEMPERATURE_LIMIT = 1e-6  # relative: it is applied in float32
BINS = 15
LONGEST_TAG = 100_000  # characters: MLflow's MAX_MODEL_REGISTRY_TAG_VALUE_LENGTH


# ---- shared with export --------------------------------------------------------------------------


def validation_of(
    dataset: Dataset, seed: int, digest: str, unturned: bool = False
) -> tuple[Prepared, Split]:
    """The validation split of the data with that digest.

    unturned: it may be of images that calstudy did not turn when the study was made, if the cache
    still has them. Raises NotVerified if data has changed, FieldError if the cache lacks them.
    """
    found = data_digests(dataset, seed)
    if digest not in (*found, *(unturned_digests(dataset, seed) if unturned else ())):
        said = "the data has changed since the trial was trained"
        said = f"{said} (digest {found.apart[:12]}, was {digest[:12]}); restore it"
        raise NotVerified(joined(*why_other(dataset, seed, digest, said, "")))
    prepared = prepare(dataset, seed, digest=digest)
    return prepared, load_split(prepared, "validation")


def probabilities_digest(probs: np.ndarray) -> str:
    """sha256 of the probabilities as little-endian float32, row by row."""
    return hashlib.sha256(np.ascontiguousarray(probs, dtype="<f4").tobytes()).hexdigest()


def metrics_of_probs(
    probs: np.ndarray, labels: Tensor, also: Collection[str] = ()
) -> dict[str, float | None]:
    """The metrics of calstudy that trials store, and `also`, of probabilities [N, K]; None if not
    finite (a label with probability 0)."""
    names = [name for name, one in metrics.ours().items() if one.stored or name in also]
    found = metrics.measure(_logits(probs), labels, names, BINS)
    return {name: _finite(value) for name, value in found.items()}


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:500]


def tag_value(value: Any) -> str:
    """A record's value as stored in its registry tag; its digest where MLflow takes no text as
    long, of many columns."""
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > LONGEST_TAG:
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return text


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _logits(probs: np.ndarray) -> Tensor:
    return torch.from_numpy(probs.astype(np.float64)).log()


# ---- the comparison ------------------------------------------------------------------------------


def compare(
    found: np.ndarray, reference: np.ndarray, labels: Tensor, recorded: Mapping[str, float | None]
) -> list[Any]:
    """[checks, flipped, metrics] of the probabilities found, [N, K], against the registered ones.

    Metrics that count are not continuous: a difference in the last digit may move a sample on a tie
    between classes or on the edge of a bin. Such samples are found by comparing every decision; a
    metric passes if it matches with their rows as registered.
    """
    difference = float(np.abs(found.astype(np.float64) - reference).max())
    checks = [_check("probabilities", difference, SAME_PATH_LIMIT)]
    flipped = (_decisions(found, labels) != _decisions(reference, labels)).any(dim=1)
    values = metrics_of_probs(found, labels, recorded)
    settled = np.where(flipped.numpy()[:, None], reference, found)
    of_settled = metrics_of_probs(settled, labels, recorded)
    for name, expected in recorded.items():
        differs = _distance(values.get(name), expected)
        is_tie = (
            differs > METRIC_LIMIT >= _distance(of_settled.get(name), expected) and checks[0].ok
        )
        label = f"{name} ({int(flipped.sum())} samples on a tie)" if is_tie else name
        checks.append(_check(label, differs, METRIC_LIMIT, is_tie))
    return [checks, int(flipped.sum()), values]


def _decisions(probs: np.ndarray, labels: Tensor) -> Tensor:
    """The metrics' decisions about each sample, [N, K + 3]: its class, its equal-mass bin, whether
    its label is in the top five, and its equal-width bin for each class."""
    logits = _logits(probs)
    values = logits.softmax(dim=-1)
    confidence, top = values.max(dim=-1)
    own = values.gather(-1, labels[:, None])
    among_five = (values > own).sum(dim=-1) < 5
    columns = [top, equal_mass_index(confidence, BINS), among_five.long()]
    return torch.cat([torch.stack(columns, dim=1), equal_width_index(values, BINS)], dim=1)


def _distance(found: float | None, expected: float | None) -> float:
    if found is None or expected is None:
        return 0.0 if found is expected else math.inf
    return abs(found - expected)


def _check(name: str, found: float, limit: float, is_tie: bool = False) -> Comparison:
    return Comparison(name, float(f"{found:.3g}"), limit, is_tie or found <= limit)


# ---- the caller ----------------------------------------------------------------------------------

# ---- the fresh process ---------------------------------------------------------------------------


def examine(
    model_uri: str,
    storage: Path,
    extensions: Path | None = None,
    keep: Path | None = None,
) -> VerifyReport:
    """Verify in this process. Raises NotVerified and MLflow's errors."""
    import mlflow
    from mlflow.artifacts import download_artifacts

    client = mlflow.MlflowClient()
    version = registered_version(client, *parts_of(model_uri))
    uri = f"models:/{version.name}/{version.version}"
    with TemporaryDirectory(prefix="calstudy-") as folder:
        recorded = client.get_model_version_download_uri(version.name, version.version)
        name = version.tags.get(PREFIX + "study", "")
        location = present_location(recorded, name, client.tracking_uri, storage)
        directory = Path(download_artifacts(location, dst_path=folder))
        _compare_files(directory, version)
        record, reference, labels = _read(directory, uri)
        code = extensions or _own_extensions(record, version, storage)
        prepared, split = _validation(record, code, storage)
        model = load_registered(directory)
        probs = predict_registered(model, split.images, split.positions)
        raw: Any = model.get_raw_model()  # type: ignore[no-untyped-call]
        applied = float(raw.get_buffer("temperature"))
        if probs.shape != reference.shape:
            shapes = f"{list(probs.shape)}, the registered {list(reference.shape)}"
            raise NotVerified(f"its probabilities have shape {shapes}.")
        written = {key: tag_value(value) for key, value in record.items()}
        changed = [key for key in written if version.tags.get(PREFIX + key) != written[key]]
        is_one = record["serves"] == RAW or "calibrator" in record
        served = 1.0 if is_one else record["temperature"]
        is_registered = probabilities_digest(reference) == record["probabilities_sha256"]
        checks, flipped, values = compare(probs, reference, split.labels, record["metrics"])
        first = [
            _check(f"tags that differ from the record{_listed(changed)}", len(changed), 0),
            _check("stored probabilities with a different digest", int(not is_registered), 0),
            _check("temperature applied", abs(applied / served - 1), TEMPERATURE_LIMIT),
            _check("labels that differ from the data", int((labels != split.labels).sum()), 0),
        ]
        if known := record.get("vocabulary_sha256"):
            found = (file_digest(directory / WORDS), prepared.vocabulary)
            others = sum(digest != known for digest in found)
            first.append(_check("vocabularies with a different digest", others, 0))
        if known := record.get("calibration", {}).get("sha256"):
            tensors = {name: raw.get_buffer(f"calibrator.{name}") for name in NAMES}
            others = int(tensors_digest(tensors) != known)
            first.append(_check("calibrators with a different digest", others, 0))
        sizes = len(split.labels), record.get("num_images", 0)
        report = VerifyReport(uri, (*first, *checks), *sizes, flipped, values)
        if keep is not None and report.ok:
            _keep(directory, keep)
    return report


def _keep(directory: Path, keep: Path) -> None:
    """Copy the files verified; the folder is whole or not there."""
    keep.absolute().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=keep.absolute().parent, prefix=f"{keep.name}.partial-") as folder:
        partial = Path(folder) / keep.name
        shutil.copytree(directory, partial)
        mask = os.umask(0)
        os.umask(mask)
        partial.chmod(0o777 & ~mask)  # a download's is for its user alone
        try:
            partial.rename(keep)
        except OSError:
            if os.path.lexists(keep):
                raise NotVerified(f"--keep: {keep} exists. Name a folder that does not.") from None
            raise


def _compare_files(directory: Path, version: ModelVersion) -> None:
    """Raise NotVerified unless the files are those registered: opening others may run code."""
    (directory / ADDED).unlink(missing_ok=True)
    if ARTIFACTS not in version.tags:
        raise NotVerified(
            f"the registry has no digests of its files (the tag {ARTIFACTS}), and they were not"
            " opened. Register it again with `calstudy export`."
        )
    if problems := differences(directory, recorded_digests(version.tags)):
        raise NotVerified(
            f"its files are not those registered, and were not opened: {'; '.join(problems)}."
        )


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _read(directory: Path, uri: str) -> tuple[Mapping[str, Any], np.ndarray, Tensor]:
    """The record, the probabilities [N, K] and the labels [N] registered with the model."""
    if not (directory / RECORD).is_file() or not (directory / PROBABILITIES).is_file():
        raise NotVerified(
            f"{uri} has no calstudy record: it was not registered by `calstudy export`."
        )
    try:
        record = json.loads((directory / RECORD).read_text())
        with np.load(directory / PROBABILITIES, allow_pickle=False) as archive:
            return record, archive["probs"], torch.from_numpy(archive["labels"])
    except Exception as error:  # whatever NumPy raises on a damaged file
        raise NotVerified(
            f"{uri}: its record is damaged ({type(error).__name__}: {first_line(error)})."
        ) from None


def _own_extensions(record: Mapping[str, Any], version: ModelVersion, storage: Path) -> Path | None:
    """The extensions of the study in `storage`, unless the data set is ours: no tag says where."""
    wanted = record["config"]["data"]["name"]
    if wanted in data.names():
        return None
    name, study_id = (version.tags.get(PREFIX + key, "") for key in ("study", "id"))
    try:
        if Path(name).name != name:
            raise SpecError(name, "", "is not a study's name")
        study = open_directory(storage / name, name)
        if study.id != study_id or study.plain["extensions"] != EXTENSIONS:
            raise SpecError(name, "", "is another study")
    except SpecError:
        problem = (
            f"its data set '{wanted}' is code of the study '{name}', which is not in {storage}"
        )
        raise NotVerified(
            f"{problem}. Give that storage with --storage, or the code with --extensions."
        ) from None
    folder = study.directory / EXTENSIONS
    for file in changed_files(folder, record["extensions"]):
        problem = f"{folder / file} is not what its trial was trained with, and was not imported"
        raise NotVerified(f"{problem}. Restore it, or give the code with --extensions.")
    return folder


def _validation(
    record: Mapping[str, Any], extensions: Path | None, storage: Path
) -> tuple[Prepared, Split]:
    config = record["config"]
    if extensions is not None:
        use_extensions(extensions)
    dataset = build(Dataset, moved_with_study(config["data"], storage))
    return validation_of(dataset, config["seed"], record["data_digest"])


def main() -> None:
    """Print the report of the model given on the command line."""
    model_uri, storage, extensions, keep = sys.argv[1:]
    try:
        own = Path(extensions) if extensions else None
        report = examine(model_uri, Path(storage), own, Path(keep) if keep else None)
    except NotVerified as error:
        report = VerifyReport(model_uri, problem=str(error))
    except Exception as error:  # whatever MLflow, torch or the data raise: not verified, and why
        known = s3_problem(error) or driver_problem(error)
        problem = known or f"{first_line(error)} ({type(error).__name__})"
        report = VerifyReport(model_uri, problem=problem)
    print(json.dumps(report.to_json()))


if __name__ == "__main__":
    main()
