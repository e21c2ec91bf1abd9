"""Every trial of a study as a row of a table: for a CSV file and for a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from study.analysis.pareto import row_values
from study.analysis.states import snapshot
from study.schema.printable import csv_text
from study.store.openings import Tested, read_tested
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.files.output import write_output
from trainables.plain import Value


def trial_rows(study: StudyFolder) -> list[dict[str, Value]]:
    """Rows with the same columns; None where a trial has no value. Times: seconds since 1970.

    trial, method, number, state (a key of `states.WORDS`), front; same_as: of trials with equal
    predictions, the one that stands for it; each searched path; each validation metric; of a
    confirmation each metric on test, as `test_ece`; then what training it took, and why the trial
    does not count, if so. Nothing is ranked by test.
    """
    now = snapshot(study)
    records = now.records
    ranking = now.ranking
    tested = values_on_test(records, read_tested(study))
    on_front = {record.name for record in ranking.front}
    return [
        {
            "trial": record.name,
            "method": record.label,
            "number": record.number,
            "state": now.states[record.name],
            "front": ranking.stands_for.get(record.name, record.name) in on_front,
            "same_as": ranking.stands_for.get(record.name),
            **values,
            **tests,
            "epoch": record.epoch,
            "samples": record.samples,
            "seconds": record.seconds,
            "attempts": record.attempt,
            "started": record.started,
            "ended": record.ended,
            "device": record.device,
            "host": record.host,
            "training": record.how_trained,
            "reason": record.reason or ranking.excluded.get(record.name),
        }
        for record, values, tests in zip(records, row_values(records), tested, strict=True)
    ]


def values_on_test(
    records: Sequence[TrialRecord], tested: Mapping[str, Mapping[int, Tested]]
) -> list[dict[str, Value]]:
    """Each trial's metrics on the test split, all with the same keys; none where there are none."""
    found = [tested.get(record.label, {}).get(record.number) for record in records]
    measured = [{} if one is None else one.metrics for one in found]
    names = [name for name in metrics.names() if any(name in values for values in measured)]
    return [{f"test_{name}": values.get(name) for name in names} for values in measured]


def write_csv(rows: Sequence[dict[str, Value]], path: Path) -> None:
    """The rows with a header; None is an empty cell."""
    columns = list(rows[0]) if rows else ["trial", "method", "number", "state"]
    write_output(path, csv_text(columns, rows).encode())
