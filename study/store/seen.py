"""A study as if it had other objectives: read once, with what its trials did not record measured
from their stored predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from study.schema.objective import Objective
from study.store.files import PREDICTIONS, lost_predictions, stored_predictions
from study.store.given import Given
from study.store.openings import Tested, predictions_of
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.machine import in_threads
from trainables.problems import FieldError

ByLabel = dict[str, dict[int, Tested]]  # test results, by label and number


def seen_by(study: Study, objectives: Sequence[Objective] | None) -> Study:
    """The study as if it had these objectives; itself for None, or where it has just these.

    A trial that lacks one and whose predictions are missing or altered is left out. Raises
    FieldError for a metric that is undefined for its classes.
    """
    given = tuple(objectives or study.own_objectives)
    if given == study.own_objectives:
        return study
    names = [one.metric for one in given]
    _check_defined(study, names)
    complete = study.records().complete
    lacking = {
        record.name: [name for name in names if name not in record.metrics] for record in complete
    }
    to_measure = [record for record in complete if lacking[record.name]]
    lost = lost_predictions(study, to_measure)
    readable = [record for record in to_measure if record.name not in lost]

    def measured(record: TrialRecord) -> dict[str, float]:
        wanted = lacking[record.name]
        found = stored_predictions(study, record).evaluate(also=wanted)
        return {name: found[name] for name in wanted if name in found}

    values = in_threads(measured, readable)
    known = {record.name: of for record, of in zip(readable, values, strict=True)}
    left_out = {}
    for record in to_measure:
        absent = [name for name in lacking[record.name] if name not in known.get(record.name, {})]
        if absent:
            because = "it has no value on its predictions"
            if record.name in lost:
                because = f"it was not recorded, and {PREDICTIONS} {lost[record.name]}"
            left_out[record.name] = f"{', '.join(absent)}: {because}"
    return replace(study, given=Given(given, study.own_objectives, known, left_out))


def _check_defined(study: Study, names: Sequence[str]) -> None:
    classes = len(study.recorded.classes)
    available = set(metrics.available(classes))
    for name in names:
        if metrics.describe(name).name not in available:
            raise FieldError(
                "--objectives", f"{name} is undefined for {classes} classes", "Use accuracy."
            )


def tested_by(study: Study, tested: ByLabel) -> ByLabel:
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
            found = predictions_of(study, record, one).evaluate_at(one.temperature, also=lacking)
        except FieldError:  # the answer says which files are lost
            return one
        more = {name: found[name] for name in lacking if name in found}
        return replace(one, metrics={**one.metrics, **more})

    return {
        label: {number: whole((label, number), one) for number, one in of.items()}
        for label, of in tested.items()
    }
