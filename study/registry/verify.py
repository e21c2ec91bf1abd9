"""The proof that a registered model is the one measured: `python -m study.registry.verify URI`, a process of its own.

Takes its tracking server from MLFLOW_TRACKING_URI, prints a VerifyReport as JSON; `verify` starts it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from study.schema.uris import scrub, sqlite_file
from trainables import data, metrics
from trainables.config import build
from trainables.dataset import Dataset
from trainables.loading.cache import Prepared, Split, data_digest, load_split, prepare
from trainables.outputs.classifier import batches
from trainables.plugins import use_extensions

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

# Beside the model, in its artifacts.
RECORD, PROBABILITIES, CARD = "calstudy/record.json", "calstudy/validation_probs.npz", "calstudy/card.md"
TAG = "calstudy."

SAME_PATH_LIMIT, METRIC_LIMIT = 1e-5, 1e-6  # in probability, and in a metric
BINS = 15


class NotVerified(Exception):
    """What stands in the way of a comparison, in one line."""


@dataclass(frozen=True)
class Check:
    """One comparison: what was found, and what it may be."""

    name: str
    found: float
    limit: float
    ok: bool


@dataclass(frozen=True)
class VerifyReport:
    """`problem` is what kept the comparison from being made. `flipped`: samples that fell the other way of a tie."""

    model: str
    checks: tuple[Check, ...] = ()
    num_samples: int = 0
    flipped: int = 0
    metrics: dict[str, float | None] = field(default_factory=dict)
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.problem is None and bool(self.checks) and all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Plain values; None is a number that is not finite."""
        checks = [{**asdict(check), "found": _finite(check.found)} for check in self.checks]
        return {"ok": self.ok, **asdict(self), "checks": checks}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> VerifyReport:
        """What `to_json` gave."""
        rest = {key: value for key, value in plain.items() if key not in ("ok", "checks")}
        checks = [
            {**check, "found": math.nan if check["found"] is None else check["found"]} for check in plain["checks"]
        ]
        return cls(checks=tuple(Check(**check) for check in checks), **rest)


# ---- what export and verify share ----------------------------------------------------------------------------------


def validation_of(dataset: Dataset, seed: int, digest: str) -> tuple[Prepared, Split]:
    """The validation split of the data with that digest. Raises NotVerified where the data is another by now."""
    found = data_digest(dataset, seed)
    if found != digest:
        raise NotVerified(
            f"the data is not what the trial was trained on (digest {found[:12]}, not {digest[:12]}); put it back."
        )
    prepared = prepare(dataset, seed)
    return prepared, load_split(prepared, "validation")


def predict_registered(directory: Path, images: Tensor) -> np.ndarray:
    """Probabilities [N, K] float32 that a saved MLflow model gives for images [N, C, H, W], on the CPU."""
    import mlflow.pyfunc

    model = mlflow.pyfunc.load_model(str(directory), model_config={"device": "cpu"})
    return np.concatenate([model.predict(batch.float().numpy()) for batch in batches(images)])


def probabilities_digest(probs: np.ndarray) -> str:
    """sha256 of the probabilities as little-endian float32, row by row."""
    return hashlib.sha256(np.ascontiguousarray(probs, dtype="<f4").tobytes()).hexdigest()


def evaluate(probs: np.ndarray, labels: Tensor) -> dict[str, float | None]:
    """Every metric of probabilities [N, K]; None where it is not finite (a label whose probability is 0)."""
    found = metrics.evaluate(_logits(probs), labels, BINS)
    return {name: _finite(value) for name, value in found.items()}


def first_line(error: BaseException) -> str:
    """What an error says, shortly."""
    return str(error).strip().partition("\n")[0][:500]


def tag_value(value: Any) -> str:
    """A value of the record as its tag in the registry holds it."""
    return value if isinstance(value, str) else json.dumps(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _logits(probs: np.ndarray) -> Tensor:
    return torch.from_numpy(probs.astype(np.float64)).log()


# ---- the comparison ------------------------------------------------------------------------------------------------


def compare(
    found: np.ndarray, reference: np.ndarray, labels: Tensor, recorded: Mapping[str, float | None]
) -> list[Any]:
    """[checks, flipped, metrics] of probabilities found [N, K] against those registered, and their metrics.

    Metrics that count are not continuous: a sample on a tie between two classes, or on the edge of a bin, may fall
    the other way for a difference in the last digit. Such samples are found by comparing every such decision; a
    metric then holds if it holds with their rows as they were registered.
    """
    difference = float(np.abs(found.astype(np.float64) - reference).max())
    checks = [_check("probabilities", difference, SAME_PATH_LIMIT)]
    flipped = (_decisions(found, labels) != _decisions(reference, labels)).any(dim=1)
    values = evaluate(found, labels)
    settled = evaluate(np.where(flipped.numpy()[:, None], reference, found), labels)
    for name, expected in recorded.items():
        differs = _distance(values.get(name), expected)
        is_tie = differs > METRIC_LIMIT >= _distance(settled.get(name), expected) and checks[0].ok
        label = f"{name} ({int(flipped.sum())} samples on a tie)" if is_tie else name
        checks.append(Check(label, _short(differs), METRIC_LIMIT, is_tie or differs <= METRIC_LIMIT))
    return [checks, int(flipped.sum()), values]


def _decisions(probs: np.ndarray, labels: Tensor) -> Tensor:
    """All that metrics decide about each sample, [N, K + 3]: its class, its bins of equal width for each class, its
    bin of equal mass, and whether its label is among the first five.
    """
    logits = _logits(probs)
    values = logits.softmax(dim=-1)
    confidence, top = values.max(dim=-1)
    n = len(labels)
    # Bins of equal mass: sizes as numpy.array_split; equal confidences follow the first of them.
    first_rank = torch.searchsorted(confidence.sort().values, confidence)
    ends = torch.tensor([n // BINS + (k < n % BINS) for k in range(BINS)]).cumsum(0)
    own = values.gather(-1, labels[:, None])
    among_five = (values > own).sum(dim=-1) < 5
    edges = torch.arange(1, BINS, dtype=torch.float64) / BINS
    columns = [top, torch.bucketize(first_rank, ends, right=True), among_five.long()]
    return torch.cat([torch.stack(columns, dim=1), torch.bucketize(values, edges)], dim=1)


def _distance(found: float | None, expected: float | None) -> float:
    if found is None or expected is None:
        return 0.0 if found is expected else math.inf
    return abs(found - expected)


def _check(name: str, found: float, limit: float) -> Check:
    return Check(name, _short(found), limit, found <= limit)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


# ---- asking for it --------------------------------------------------------------------------------------------------

# MLflow's own patience with a server that is away, 7 retries, is four minutes; 3 are a quarter of one.
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
ROOT = Path(__file__).resolve().parents[2]


def verify(model_uri: str, tracking_uri: str) -> VerifyReport:
    """Load the version in a fresh process that refuses pickle, predict validation from the data again, and compare."""
    missing = missing_database(tracking_uri)
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


def missing_database(tracking_uri: str) -> Path | None:
    """The file of an SQLite URI that is not there: MLflow would make an empty one."""
    path = sqlite_file(tracking_uri)
    return None if path is None or path.is_file() else path


# ---- the fresh process ---------------------------------------------------------------------------------------------


def examine(model_uri: str) -> VerifyReport:
    """Load the version, predict its validation split from the data, compare. Raises NotVerified and MLflow's errors."""
    import mlflow
    from mlflow.artifacts import download_artifacts

    version = _version(mlflow.MlflowClient(), model_uri)
    uri = f"models:/{version.name}/{version.version}"
    with TemporaryDirectory(prefix="calstudy-") as folder:
        directory = Path(download_artifacts(uri, dst_path=folder))
        record, reference, labels = _read(directory, uri)
        _refuse_code(directory)
        split = _validation(record)
        probs = predict_registered(directory, split.images)
    if probs.shape != reference.shape:
        raise NotVerified(f"it gives probabilities {list(probs.shape)}; registered are {list(reference.shape)}.")
    changed = [key for key, value in record.items() if version.tags.get(TAG + key) != tag_value(value)]
    is_registered = probabilities_digest(reference) == record["probabilities_sha256"]
    checks, flipped, values = compare(probs, reference, split.labels, record["metrics"])
    first = [
        _check(f"tags that differ from its record{_listed(changed)}", len(changed), 0),
        _check("stored probabilities with another digest", int(not is_registered), 0),
        _check("labels that differ from the data's", int((labels != split.labels).sum()), 0),
    ]
    return VerifyReport(uri, (*first, *checks), len(split.labels), flipped, values)


def _version(client: MlflowClient, model_uri: str) -> ModelVersion:
    parts = re.fullmatch(r"models:/([^/]+)([/@])([^/@]+)", model_uri)
    if parts is None:
        raise NotVerified(f"'{model_uri}' is no registered version; give models:/NAME/VERSION or models:/NAME@ALIAS.")
    name, separator, which = parts.groups()
    if separator == "/" and which.isdigit():
        return client.get_model_version(name, which)
    return client.get_model_version_by_alias(name, which)  # to MLflow `latest` is an alias too


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _read(directory: Path, uri: str) -> tuple[dict[str, Any], np.ndarray, Tensor]:
    """The record, the probabilities [N, K] and the labels [N] that were registered with the model."""
    if not (directory / RECORD).is_file() or not (directory / PROBABILITIES).is_file():
        raise NotVerified(f"{uri} holds no record of ours: it was not registered by `calstudy export`.")
    try:
        record = json.loads((directory / RECORD).read_text())
        with np.load(directory / PROBABILITIES, allow_pickle=False) as archive:
            return record, archive["probs"], torch.from_numpy(archive["labels"])
    except Exception as error:  # whatever NumPy makes of a damaged file
        raise NotVerified(f"{uri}: its record is damaged ({type(error).__name__}: {first_line(error)}).") from None


def _refuse_code(directory: Path) -> None:
    """Nothing but MLflow's own loader, which refuses pickle, may load the model: no code travels with it."""
    from mlflow.models import Model

    flavors = Model.load(str(directory)).flavors
    loader = flavors.get("python_function", {}).get("loader_module")
    if loader != "mlflow.pytorch" or any(flavor.get("code") for flavor in flavors.values()):
        raise NotVerified(f"it would run code of its own when loaded (loader {loader}); `calstudy export` makes none.")


def _validation(record: dict[str, Any]) -> Split:
    config = record["config"]
    if config["data"]["name"] not in data.names():
        use_extensions(config["extensions"])
    _, split = validation_of(build(Dataset, config["data"]), config["seed"], record["data_digest"])
    return split


def main() -> None:
    """Print the report of the model named on the command line."""
    (model_uri,) = sys.argv[1:]
    try:
        report = examine(model_uri)
    except NotVerified as error:
        report = VerifyReport(model_uri, problem=str(error))
    except Exception as error:  # whatever MLflow, torch or the data say: it is not verified, and here is why
        report = VerifyReport(model_uri, problem=f"{first_line(error)} ({type(error).__name__})")
    print(json.dumps(report.to_json()))


if __name__ == "__main__":
    main()
