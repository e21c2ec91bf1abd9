"""The trained networks of a confirmation, as predictions: one per seed, on validation or on test."""

from __future__ import annotations

from collections.abc import Sequence

from study.confirmation.results import Confirmation, Confirmed
from study.store.files import checked_file, stored_predictions
from study.store.study import Study
from study.store.test_openings import TEST_FILE, read_tested
from study.uncertainty.methods import Measured
from trainables.outputs.predictions import Predictions


def networks_on_validation(study: Study, rows: Sequence[Confirmed]) -> dict[str, list[Measured]]:
    """By label. study: the confirmation. Raises FieldError if stored predictions are missing or altered."""
    return {
        row.label: [Measured(stored_predictions(study, one)) for one in row.records] for row in rows
    }


def networks_on_test(confirmation: Confirmation) -> dict[str, list[Measured]]:
    """By label, those that were measured on test. Raises as `networks_on_validation`."""
    study, tested = confirmation.study, read_tested(confirmation.study)
    return {
        row.label: [
            Measured(
                Predictions.load(checked_file(study, record, TEST_FILE, one.digests)),
                one.temperature,
            )
            for record in row.records
            if (one := tested[row.label].get(record.number)) is not None
        ]
        for row in confirmation.rows
    }
