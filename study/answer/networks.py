"""The trained networks of a confirmation, as predictions: one per seed, on validation or test."""

from __future__ import annotations

from collections.abc import Sequence

from study.answer.confirmation import Confirmation, Confirmed
from study.store.files import checked_file, stored_predictions
from study.store.openings import TEST_FILE
from study.store.study import Study
from study.uncertainty.methods import NetworkPredictions
from trainables.outputs.predictions import Predictions


def networks_on_validation(
    study: Study, rows: Sequence[Confirmed]
) -> dict[str, list[NetworkPredictions]]:
    """The networks by label.

    study: the confirmation. Raises FieldError if stored predictions are missing or altered.
    """
    return {
        row.label: [NetworkPredictions(stored_predictions(study, one)) for one in row.records]
        for row in rows
    }


def networks_on_test(confirmation: Confirmation) -> dict[str, list[NetworkPredictions]]:
    """The networks that were measured on test, by label. Raises as `networks_on_validation`."""
    study = confirmation.study
    found: dict[str, list[NetworkPredictions]] = {}
    for row in confirmation.rows:
        found[row.label] = []
        for record in row.records:
            if one := confirmation.tested[row.label].get(record.number):
                file = checked_file(study, record, TEST_FILE, one.digests)
                found[row.label].append(NetworkPredictions(Predictions.load(file), one.temperature))
    return found
