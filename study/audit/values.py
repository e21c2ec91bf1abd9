"""Recorded metrics, recomputed from the stored predictions."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from torch import Tensor

from study.audit.evidence import Evidence
from study.audit.result import Check
from study.store.files import PREDICTIONS
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.machine import in_threads
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

TOLERANCE = 1e-6  # of a metric recomputed, maybe on another machine


def check_results(facts: Evidence, whole: set[Path]) -> Check:
    """The stored predictions give every metric of the ledger, and are all of the same samples; the
    sampler has the objectives.

    whole: the files that match the ledger. The values of metrics of one's own are as recorded:
    their code is not run.
    """
    check = Check("results", "metrics match the stored predictions")
    names = [objective.metric for objective in facts.study.spec.objectives]
    readable = []
    for record in facts.records.finished:
        if record.state == "failed":
            continue
        recorded = [record.metrics.get(name, math.nan) for name in names]
        told = recorded if record.state == "complete" else None
        if (found := facts.values[record.name]) != told:
            check.add_offender(record.name, f"the sampler has {found}, the outcome {told}")
        name = PREDICTIONS if record.state == "complete" else f"rung-{record.epoch}.npz"
        file = facts.study.files(record) / name
        if file in whole:
            readable.append((record, file))
    check.counted = len(readable)
    of_samples: dict[bytes, list[str]] = defaultdict(list)
    compared = in_threads(lambda one: _compared(*one, names), readable)
    for (record, _), (problems, samples) in zip(readable, compared, strict=True):
        check.add_differences(record.name, problems)
        if samples is not None:
            of_samples[samples].append(record.name)
    usual = max(of_samples.values(), key=len, default=[])
    for name in (name for others in of_samples.values() if others is not usual for name in others):
        problem = f"its validation labels or groups differ from {usual[0]}"
        check.add_offender(name, problem, "it was trained on other data")
    return check


def _compared(
    record: TrialRecord, file: Path, objectives: Iterable[str]
) -> tuple[list[str], bytes | None]:
    """The metrics that differ, and a digest of what tells the samples of a split."""
    try:
        predictions = Predictions.stored(file)
    except FieldError as error:
        return [error.problem], None
    told = hashlib.sha256(predictions.labels.numpy().tobytes())
    if predictions.groups is not None:
        told.update(predictions.groups.numpy().tobytes())
    # An objective is compared although it is lacking.
    wanted = dict.fromkeys(objectives, math.nan) | record.metrics
    found = recomputed(wanted, predictions, predictions.cross_fitted())
    return list(differing(wanted, found, file.name)), told.digest()


def recomputed(
    names: Iterable[str], predictions: Predictions, calibrated: Tensor
) -> dict[str, float]:
    """Our metrics of these names; NaN for one that is undefined here.

    calibrated: the logits after temperature scaling, for names with `ts_`.
    """
    prefix = metrics.AFTER_TEMPERATURE
    known = [name for name in names if name.removeprefix(prefix) in metrics.ours()]
    after = [name.removeprefix(prefix) for name in known if name.startswith(prefix)]
    before = [name for name in known if not name.startswith(prefix)]
    labels = predictions.labels
    found = metrics.measure(predictions.logits, labels, before, calibrated=calibrated)
    scaled = metrics.measure(calibrated, labels, after)
    found |= {prefix + name: value for name, value in scaled.items()}
    return {name: found.get(name, math.nan) for name in known}


def differing(
    recorded: Mapping[str, float], found: Mapping[str, float], file: str, on: str = ""
) -> Iterator[str]:
    """In words, what the ledger has otherwise than the file. on: a split, ` on test`."""
    for name, value in found.items():
        told = recorded.get(name, math.nan)
        if not abs(told - value) <= TOLERANCE and not (math.isnan(told) and math.isnan(value)):
            yield f"{name}{on} is {told:g} in the ledger, {value:g} from {file}"
