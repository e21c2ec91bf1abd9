"""A study as if it had other objectives: read once, with what its trials did not record measured
from their stored predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from study.schema.matters import read_matters
from study.schema.objective import Objective, read_objectives
from study.store.files import PREDICTIONS, lost_predictions, stored_predictions
from study.store.openings import Tested, predictions_of
from study.store.other_objectives import OtherObjectives
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.machine import in_threads
from trainables.problems import FieldError

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.outputs.predictions import Predictions

ByLabel = dict[str, dict[int, Tested]]  # test results, by label and number


def with_objectives(
    study: StudyFolder, objectives: str | Sequence[Objective] | None
) -> StudyFolder:
    """The study as if it had these objectives; itself for None, or where it has just these.

    objectives: also as `--objectives` has them. A trial that lacks one and whose predictions are
    missing or altered is left out. Raises FieldError for what can be no objective here.
    """
    if isinstance(objectives, str):
        objectives = read_objectives(objectives, "--objectives")
    given = tuple(objectives or study.own_objectives)
    if given == study.own_objectives:
        return study
    names = [one.metric for one in given]
    _check_defined(study, names)
    complete = study.records().complete
    lacking = {
        record.name: [name for name in names if name not in record.metrics] for record in complete
    }
    for name in filter(metrics.is_own, names):
        if complete and all(name in lacking[record.name] for record in complete):
            found = f"no trial recorded {name}, and a metric of your own is computed in training"
            raise FieldError("--objectives", found, "Leave it out.")
    to_measure = [record for record in complete if lacking[record.name]]
    lost = lost_predictions(study, to_measure)
    readable = [record for record in to_measure if record.name not in lost]

    def measured(record: TrialRecord) -> dict[str, float]:
        predictions = stored_predictions(study, record)
        return _measured(predictions, predictions.cross_fitted(), lacking[record.name])

    values = in_threads(measured, readable)
    known = {record.name: of for record, of in zip(readable, values, strict=True)}
    left_out = {}
    for record in to_measure:
        absent = [name for name in lacking[record.name] if name not in known.get(record.name, {})]
        if absent:
            because = "it has no value on its predictions"
            if any(map(metrics.is_own, absent)):
                because = "it was not recorded, and a metric of your own is computed in training"
            if record.name in lost:
                because = f"it was not recorded, and {PREDICTIONS} {lost[record.name]}"
            left_out[record.name] = f"{', '.join(absent)}: {because}"
    return replace(study, given=OtherObjectives(given, study.own_objectives, known, left_out))


def check_given_matters(study: StudyFolder) -> None:
    """Raise FieldError if neither the study nor the metric says what matters in an objective given
    afterwards: the answer counts in that."""
    for one in () if study.given is None else study.given.objectives:
        metric = metrics.describe(one.metric)
        said = read_matters(study.plain.get("matters"), study.own_objectives)
        if metric.matters is None and metric.name not in said:
            found = f"{metric.name} does not say which difference matters"
            raise FieldError("--objectives", found, "Leave it out; `calstudy pareto` takes it.")


def _measured(
    predictions: Predictions, calibrated: Tensor, names: Sequence[str]
) -> dict[str, float]:
    """Our metrics of these, as far as they are defined; those of one's own are never run here."""
    logits = predictions.logits.double()
    values = {
        name: metrics.value(name, logits, predictions.labels, calibrated)
        for name in names
        if not metrics.is_own(name)
    }
    return {name: value for name, value in values.items() if not math.isnan(value)}


def _check_defined(study: StudyFolder, names: Sequence[str]) -> None:
    classes = len(study.recorded.classes)
    available = set(metrics.available(classes))
    for name in names:
        if metrics.describe(name).name not in available:
            raise FieldError(
                "--objectives", f"{name} is undefined for {classes} classes", "Use accuracy."
            )


def tested_by(study: StudyFolder, tested: ByLabel) -> ByLabel:
    """Test results of a confirmation with the objectives given, as far as its files are whole.

    They are of what an opening wrote then: nothing is opened.
    """
    if study.given is None:
        return tested
    names = [one.metric for one in study.given.objectives]
    records = {(record.label, record.number): record for record in study.records().complete}

    def whole(place: tuple[str, int], one: Tested) -> Tested:
        lacking = [name for name in names if name not in one.metrics]
        record = records.get(place)
        if not lacking or record is None:
            return one
        try:
            predictions = predictions_of(study, record, one)
        except FieldError:  # the answer says which files are lost
            return one
        calibrated = predictions.logits.double() / one.temperature
        more = _measured(predictions, calibrated, lacking)
        return replace(one, metrics={**one.metrics, **more})

    return {
        label: {number: whole((label, number), one) for number, one in of.items()}
        for label, of in tested.items()
    }
