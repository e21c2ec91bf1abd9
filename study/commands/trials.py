"""Every trial of a study as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from study.terminal.console import (
    console,
    json_option,
    print_json,
    storage_option,
)
from trainables.plain import Value


@click.command()
@click.argument("study")
@click.option(
    "--csv",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="F",
    help="Write a CSV file.",
)
@storage_option
@json_option
def trials(study: str, file: Path | None, storage: str | None, as_json: bool) -> None:
    """List every trial, or write them to a CSV file.

    Each with its state, hyperparameters, validation metrics and cost. The CSV file and --json of a
    confirmation, STUDY-confirm, also have each seed's metrics on the test split, as test_ece. In
    Python, Study.open(STUDY).trials() returns the same as a pandas DataFrame.
    """
    from study.analysis.states import snapshot
    from study.analysis.trial_rows import trial_rows, write_csv
    from study.store.study import open_study
    from study.terminal.tables import trials_table

    opened = open_study(study, storage)
    if as_json:
        print_json(trial_rows(opened))
    elif file is not None:
        rows = trial_rows(opened)
        write_csv(
            [row | {name: _utc(row[name]) for name in ("started", "ended")} for row in rows], file
        )
        console.say(f"wrote {file}: {len(rows)} trials")
    elif (now := snapshot(opened)).records:
        console.print(trials_table(now.records, opened.objectives, now.states))
    else:
        console.print("no trials yet.")


def _utc(seconds: Value) -> str | None:
    if not isinstance(seconds, int | float):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
