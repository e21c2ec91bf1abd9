"""The trained networks of a confirmation, as predictions: one per seed, on validation or test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from study.answer.confirmation import Confirmation, Confirmed
from study.store.files import checked_file, stored_predictions
from study.store.openings import TEST_FILE
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.uncertainty.methods import NetworkPredictions
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError


def networks_on_validation(
    study: StudyFolder, rows: Sequence[Confirmed], lost: dict[str, str] | None = None
) -> dict[str, list[NetworkPredictions]]:
    """The networks by label.

    study: the confirmation. lost: takes what is wrong with files that are missing or altered, by
    trial; their networks are absent. Without it that raises FieldError.
    """

    def network(record: TrialRecord) -> NetworkPredictions:
        return NetworkPredictions(stored_predictions(study, record))

    return {row.label: _readable(study, row.records, network, lost) for row in rows}


def networks_on_test(
    confirmation: Confirmation, lost: dict[str, str] | None = None
) -> dict[str, list[NetworkPredictions]]:
    """The networks that were measured on test, by label. lost: as `networks_on_validation`."""
    study = confirmation.study

    def network(record: TrialRecord) -> NetworkPredictions:
        one = confirmation.tested[record.label][record.number]
        file = checked_file(study, record, TEST_FILE, one.digests)
        return NetworkPredictions(Predictions.stored(file), one.temperature)

    found = {}
    for row in confirmation.rows:
        tested = [one for one in row.records if one.number in confirmation.tested[row.label]]
        found[row.label] = _readable(study, tested, network, lost)
    return found


def _readable(
    study: StudyFolder,
    records: Iterable[TrialRecord],
    network: Callable[[TrialRecord], NetworkPredictions],
    lost: dict[str, str] | None,
) -> list[NetworkPredictions]:
    found = []
    for record in records:
        try:
            found.append(network(record))
        except FieldError as error:
            if lost is None:
                raise
            lost[record.name] = error.found.replace(f"{study.files(record)}/", "")
    return found
