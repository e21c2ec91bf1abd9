"""Report a study as an HTML page or a table for a paper."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from study.terminal.console import (
    bootstrap_option,
    check_resamples,
    console,
    errors,
    interval_option,
    storage_option,
    tracking_option,
)

if TYPE_CHECKING:
    from study.answer.confirmation import Confirmation, Results
    from study.answer.sizes import Sizes
    from study.report.comparison import Block, ComparisonTable
    from study.report.page_data import Plain
    from study.store.study import Study

Write = Callable[[Path, bytes], object]  # a file, and what it gets


@click.command()
@click.argument("studies", metavar="STUDY...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "latex", "csv", "md"]),
    default="html",
    show_default=True,
)
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="F", help="File to write."
)
@click.option("--open", "shown", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--every",
    type=int,
    metavar="SECONDS",
    help="Rewrite the page until all trials have ended; it reloads itself.",
)
@bootstrap_option
@interval_option
@storage_option
@tracking_option
def report(
    studies: tuple[str, ...],
    form: str,
    output: Path | None,
    shown: bool,
    every: int | None,
    bootstrap: int,
    level: float,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Write an HTML report, or a table for a paper.

    The self-contained page shows the answer and test results first, then the Pareto front, trials,
    learning curves, searched values, budgets, failures, noise and how to reproduce the study. It is
    written to STUDY/report.html (for several studies, to report.html next to the first) and
    uploaded to each study's MLflow run.

    --every 60 rewrites the page each minute while the study runs, on any machine that sees the
    storage, and the page reloads itself. It ends when all trials have ended, or at Ctrl-C; only the
    last page is uploaded.

    --format latex, csv or md makes a table instead: methods by error, NLL and calibration errors,
    before and after temperature scaling. It is on the test split for a confirmed study and
    otherwise on validation; the caption says which. Each of several studies (data sets) is a block
    of one table. Printed, or written to --output.
    """
    check_resamples(bootstrap, level)
    if every is not None and every < 1:
        raise click.UsageError(
            f"--every: {every} is too short. Write the seconds between two rewrites, at least 1."
        )
    if every is not None and form != "html":
        raise click.UsageError(
            f"--every rewrites the HTML page. Leave out --every or --format {form}."
        )
    if form == "html":
        _page(studies, output, shown, every, bootstrap, level, storage, tracking)
    else:
        _table(studies, form, output, bootstrap, level, storage)


# ---- the table -----------------------------------------------------------------------------------


def _table(
    studies: tuple[str, ...],
    form: str,
    output: Path | None,
    bootstrap: int,
    level: float,
    storage: str | None,
) -> None:
    from study.report.paper_table import CSV, caption, to_csv, to_latex, to_markdown
    from trainables.files.output import write_output

    table = _blocks(studies, bootstrap, level, storage)
    text = {"latex": to_latex, "csv": to_csv, "md": to_markdown}[form](table)
    if form == "csv":  # no room for a caption
        errors.print(caption(table, CSV))
    if output is None:
        click.echo(text, nl=False)
        return
    write_output(output, text.encode())
    console.say(f"wrote {output}")


def _blocks(
    studies: tuple[str, ...], bootstrap: int, level: float, storage: str | None
) -> ComparisonTable:
    from study.answer.confirmation import results_of
    from study.report.comparison import combine
    from study.store.study import open_study
    from trainables.problems import FieldError

    opened = [open_study(name, storage) for name in studies]
    for study in opened:
        _refuse_confirmation(study)
    blocks = []
    notes = []
    for study in opened:
        found = results_of(study)
        if found.missing:
            notes.append(found.missing)
        try:
            blocks.append(_block(found, bootstrap, level))
        except FieldError as error:
            notes.append(f"left out: {error}".rstrip("."))
    return combine(blocks, notes)


def _block(found: Results, bootstrap: int, level: float) -> Block:
    from study.answer.confirmation import default_notes
    from study.answer.networks import networks_on_test
    from study.report import comparison as tables
    from trainables.problems import FieldError

    study = found.study
    confirmation = found.confirmation
    if confirmation is None or not any(row.tests for row in confirmation.rows):
        confirmation = None
        block = tables.block_of_search(study, found.records)
    else:
        rows = [tables.TableRow(row.name, row.role, row.tests) for row in confirmation.rows]
        fitted_on = "on each seed's whole validation split"
        block = tables.block_of_tests(study, rows, fitted_on, default_notes(confirmation))
    if not bootstrap:
        return block
    try:
        if confirmation is None:
            networks = tables.networks_on_validation(study, block.rows, found.records)
        else:
            by_label = networks_on_test(confirmation)
            networks = {row.name: by_label[row.label] for row in confirmation.rows}
        return tables.with_ties(block, networks, bootstrap, level)
    except FieldError as error:
        # A missing or altered file: the caption says that nothing was compared.
        errors.print(f"{study.name}: {error}")
        return block


def _refuse_confirmation(study: Study) -> None:
    from trainables.problems import FieldError

    if study.confirms is not None:
        raise FieldError(
            study.name,
            f"confirms '{study.confirms}', whose report covers both",
            f"Run: calstudy report {study.confirms}",
        )


# ---- the page ------------------------------------------------------------------------------------


def _page(
    studies: tuple[str, ...],
    output: Path | None,
    shown: bool,
    every: int | None,
    bootstrap: int,
    level: float,
    storage: str | None,
    tracking: str | None,
) -> None:
    from study.store.study import open_study
    from study.tracking.artifacts import try_to_log
    from trainables.files.atomic import write_whole
    from trainables.files.output import write_output

    named = [open_study(study, storage) for study in studies]
    opened = list({study.directory: study for study in named}.values())
    for study in opened:
        _refuse_confirmation(study)
    folder = opened[0].directory
    if len(opened) > 1:
        folder = folder.parent
    file = (output or folder / "report.html").absolute()
    # Once: a study deleted meanwhile is not made again.
    file.parent.mkdir(parents=True, exist_ok=True)
    write: Write = write_whole if output is None else write_output
    notes, lacking = _write(opened, file, write, every, bootstrap, level)
    if shown:
        _show(file)
    if every and lacking:
        trials = "1 trial has" if lacking == 1 else f"{lacking:,} trials have"
        console.say(
            f"wrote {file}; {trials} yet to end. Rewriting it every {every} s; Ctrl-C stops."
        )
        notes = _rewrite(opened, file, write, every, bootstrap, level)
    for note in notes:
        console.say(note)
    console.say(f"wrote {file}, {file.stat().st_size / 1e6:.1f} MB")
    if file.is_file():  # what was written into a pipe is not there to upload
        for study in opened:
            console.say(try_to_log(study, [file], None, tracking))


def _rewrite(
    studies: list[Study], file: Path, write: Write, every: int, bootstrap: int, level: float
) -> list[str]:
    """Rewrite the page until all trials have ended or Ctrl-C; returns the notes of the last."""
    from study.store.study import open_directory

    try:
        lacking = 1
        while lacking:
            time.sleep(every)
            # It may get more trials.
            studies = [open_directory(each.directory, each.name) for each in studies]
            notes, lacking = _write(studies, file, write, every, bootstrap, level)
    except KeyboardInterrupt:
        notes, _ = _write(studies, file, write, None, bootstrap, level)
    return notes


def _write(
    studies: list[Study], file: Path, write: Write, every: int | None, bootstrap: int, level: float
) -> tuple[list[str], int]:
    """Write the page from the storage as it is now; returns its notes and how many trials have yet
    to end.

    every: seconds after which the page reloads itself, unless all have ended.
    """
    from study.report.html import write_page
    from study.report.page_data import gather_page

    gathered = []
    notes: list[str] = []
    lacking = 0
    for study in studies:
        found, left = _gathered(study, bootstrap, level)
        gathered.append(found)
        notes += found["notes"]
        lacking += left
    made = f"{datetime.now():%d %B %Y, %H:%M}"
    write_page(file, gather_page(gathered, made, every if lacking else None), write)
    return notes, lacking


def _gathered(study: Study, bootstrap: int, level: float) -> tuple[Plain, int]:
    """One study's part of the page, and how many of its trials have yet to end."""
    from study.analysis.states import Snapshot, done, summed
    from study.answer.answer import answer
    from study.answer.confirmation import results_of
    from study.report.page_data import gather
    from study.store.driver_lock import driver_is_alive
    from study.uncertainty.bootstrap import analyse_front
    from trainables.problems import FieldError

    alive = driver_is_alive(study.directory, study.ledger)  # before the ledger is read
    results = results_of(study)
    now = Snapshot.of(study, results.records, alive)
    said = analysis = refused = None
    try:
        aside = now.ranking.set_aside
        if bootstrap:
            analysis = analyse_front(study, now.records, bootstrap, level, aside)
        said = answer(results, level).to_plain()
    except FieldError as error:  # a missing or altered file: the page reports it instead
        refused = f"No {'answer' if analysis or not bootstrap else 'intervals'}: {error}"
    counts = summed(now.counts.values())
    lacking = counts["planned"] - done(counts)
    confirmation = results.confirmation
    sizes = None
    unread: Sequence[str] = ()
    if confirmation is not None:
        sizes = _sizes(confirmation, bootstrap, level)
        unread = sizes.problems
        lacking += confirmation.study.lacking(confirmation.records)
        lacking += sum(len(row.records) - len(row.tests) for row in confirmation.rows)
    found = gather(study, now.records, analysis, confirmation, now.alive, sizes)
    notes = [*found["notes"], *filter(None, (refused, results.missing, *unread))]
    found |= {"answer": said, "notes": notes, "refused": bootstrap > 0 and analysis is None}
    return found, lacking


def _sizes(confirmation: Confirmation, bootstrap: int, level: float) -> Sizes:
    from study.answer.sizes import sizes_of
    from study.report.page_confirmation import shown_floors

    study = confirmation.search
    objectives = [objective.metric for objective in study.objectives]
    return sizes_of(confirmation, shown_floors(study), objectives, bootstrap, level)


def _show(file: Path) -> None:
    import webbrowser

    if not webbrowser.open(file.as_uri()):
        console.print("could not start a browser; open the file yourself.")
