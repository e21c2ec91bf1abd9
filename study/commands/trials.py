"""Every trial of a study as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from study.terminal.console import (
    console,
    json_option,
    print_json,
    storage_option,
)
from trainables.plain import Value

if TYPE_CHECKING:
    from study.store.study import StudyFolder

EPOCHS_NOTE = (
    "Validation, which also chose the epoch: the metric it was chosen by looks better than it is."
    " Mean ± standard deviation over seeds; of a method with a search, its best trial by {}."
)


@click.command()
@click.argument("study")
@click.option(
    "--csv",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="F",
    help="Write a CSV file.",
)
@click.option(
    "--optuna",
    "journal",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="F",
    help="Write an Optuna journal, for optuna-dashboard.",
)
@click.option(
    "--epochs", is_flag=True, help="Instead: the epoch that each `result` would have taken."
)
@storage_option
@json_option
def trials(
    study: str,
    file: Path | None,
    journal: Path | None,
    epochs: bool,
    storage: str | None,
    as_json: bool,
) -> None:
    """List every trial, or write them to a CSV file.

    Each with its state, hyperparameters, validation metrics and cost. The CSV file and --json of a
    confirmation (STUDY-confirm, or a study without a search that was measured) also have each
    seed's metrics on the test split, as test_ece. In Python, Study.open(STUDY).trials() returns the
    same as a pandas DataFrame.

    --optuna: one Optuna study for each method, with the constraints as Optuna's own: best_trials is
    the front of the method's trials that count.

    --epochs: the epoch that result: last, best_accuracy, best_nll and best_ece would have taken,
    without training again, and its error, NLL and ECE on the validation split that chose it: the
    mean over a method's seeds, or its best trial if it has a search.
    """
    from study.analysis.states import snapshot
    from study.analysis.trial_rows import trial_rows, write_csv
    from study.store.study import open_study
    from study.terminal.tables import trials_table

    opened = open_study(study, storage)
    if journal is not None:
        from study.analysis.optuna_journal import write_journal

        console.say(f"wrote {journal}: {write_journal(opened, journal)} trials")
    elif epochs:
        _epochs(opened, file, as_json)
    elif as_json:
        # state_former: as the state was called before.
        former = {"excluded": "set_aside"}
        rows = trial_rows(opened)
        print_json(
            [{**row, "state_former": former.get(str(row["state"]), row["state"])} for row in rows]
        )
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


def _epochs(opened: StudyFolder, file: Path | None, as_json: bool) -> None:
    """Print the epochs that each `result` would have taken, or write them."""
    from study.analysis.epochs_taken import epochs_taken
    from study.analysis.trial_rows import write_csv
    from study.terminal.tables import epochs_table

    rows = epochs_taken(opened)
    if as_json:
        print_json(rows)
    elif file is not None:
        write_csv(rows, file)
        console.say(f"wrote {file}: {len(rows)} rows")
    else:
        console.print(epochs_table(rows))
        console.say(EPOCHS_NOTE.format(opened.objectives[0].metric))


def _utc(seconds: Value) -> str | None:
    if not isinstance(seconds, int | float):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
