"""Every trial of a study as a row of a table: for a CSV file and for a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from study.analysis.pareto import row_values
from study.analysis.states import Snapshot
from study.schema.printable import csv_text
from trainables.files.output import write_output
from trainables.plain import Value


def trial_rows(now: Snapshot) -> list[dict[str, Value]]:
    """Rows with the same columns; None where a trial has no value. Times: seconds since 1970.

    trial, method, number, state (a key of `states.WORDS`), front; each searched path; each
    validation metric; then what training it took, and why the trial does not count, if so.
    """
    records = now.records
    ranking = now.ranking
    on_front = {record.name for record in ranking.front}
    return [
        {
            "trial": record.name,
            "method": record.label,
            "number": record.number,
            "state": now.states[record.name],
            "front": record.name in on_front,
            **values,
            "epoch": record.epoch,
            "samples": record.samples,
            "seconds": record.seconds,
            "attempts": record.attempt,
            "started": record.started,
            "ended": record.ended,
            "device": record.device,
            "host": record.host,
            "training": record.how_trained,
            "reason": record.reason or ranking.set_aside.get(record.name),
        }
        for record, values in zip(records, row_values(records), strict=True)
    ]


def write_csv(rows: Sequence[dict[str, Value]], path: Path) -> None:
    """The rows with a header; None is an empty cell."""
    columns = list(rows[0]) if rows else ["trial", "method", "number", "state"]
    write_output(path, csv_text(columns, rows).encode())
