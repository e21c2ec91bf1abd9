"""Report a study as an HTML page or a table for a paper."""

from __future__ import annotations

import time
from collections.abc import Callable
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
    from study.report.comparison import Block, Table
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

    The self-contained page shows the answer and test results first, then the Pareto front, trials, learning curves,
    searched values, budgets, failures, noise and how to reproduce the study. It is written to STUDY/report.html (for
    several studies, to report.html next to the first) and uploaded to each study's MLflow run.

    --every 60 rewrites the page each minute while the study runs, on any machine that sees the storage, and the page
    reloads itself. It ends when all trials have ended, or at Ctrl-C; only the last page is uploaded.

    --format latex, csv or md makes a table instead: methods by error, NLL and calibration errors, before and after
    temperature scaling. It is on the test split for a confirmed study and otherwise on validation; the caption says
    which. Each of several studies (data sets) is a block of one table. Printed, or written to --output.
    """
    check_resamples(bootstrap, level)
    if every is not None and every < 1:
        raise click.UsageError(
            f"--every: {every} is too short; write the seconds between two rewrites, at least 1."
        )
    if every is not None and form != "html":
        raise click.UsageError(
            f"--every rewrites the HTML page; leave out --every or --format {form}."
        )
    if form == "html":
        _page(studies, output, shown, every, bootstrap, level, storage, tracking)
    else:
        _table(studies, form, output, bootstrap, level, storage)


# ---- the table -----------------------------------------------------------------------------------------------------


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
    console.print(f"wrote {output}", soft_wrap=True)


def _blocks(studies: tuple[str, ...], bootstrap: int, level: float, storage: str | None) -> Table:
    from study.report.comparison import combine
    from study.store.confirmed import missing_confirmation
    from study.store.study import open_study
    from trainables.fields import FieldError

    opened = [open_study(study, storage) for study in studies]
    for found in opened:
        _refuse_confirmation(found)
    blocks, notes = [], []
    for found in opened:
        if missing := missing_confirmation(found):
            notes.append(missing)
        try:
            blocks.append(_block(found, bootstrap, level))
        except FieldError as error:
            notes.append(f"left out: {error}".rstrip("."))
    return combine(blocks, notes)


def _block(study: Study, bootstrap: int, level: float) -> Block:
    from study.answer.networks import networks_on_test
    from study.confirmation.results import confirmation_of, default_texts
    from study.report import comparison as tables
    from trainables.fields import FieldError

    confirmation, records = confirmation_of(study), study.records()
    if confirmation is None or not any(row.tests for row in confirmation.rows):
        confirmation, block = None, tables.block_of_search(study, records)
    else:
        rows = [tables.TableRow(row.label, row.role, row.tests) for row in confirmation.rows]
        defaults = [f"{label}: {text}" for label, text in default_texts(confirmation).items()]
        block = tables.block_of_tests(
            study, rows, "on each seed's whole validation split", defaults
        )
    if not bootstrap:
        return block
    try:
        if confirmation is None:
            networks = tables.networks_on_validation(study, block.rows, records)
        else:
            networks = networks_on_test(confirmation)
        return tables.with_ties(block, networks, bootstrap, level)
    except (
        FieldError
    ) as error:  # a missing or altered file: the caption says that nothing is marked as tied
        errors.print(f"{study.name}: {error}")
        return block


def _refuse_confirmation(study: Study) -> None:
    from trainables.fields import FieldError

    if study.confirms is not None:
        problem = f"confirms '{study.confirms}', whose report covers both. Run: calstudy report {study.confirms}"
        raise FieldError(study.name, problem)


# ---- the page ------------------------------------------------------------------------------------------------------


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

    opened = list(
        {
            found.directory: found for found in (open_study(study, storage) for study in studies)
        }.values()
    )
    for study in opened:
        _refuse_confirmation(study)
    first = opened[0].directory
    file = (output or (first if len(opened) == 1 else first.parent) / "report.html").absolute()
    file.parent.mkdir(
        parents=True, exist_ok=True
    )  # once: a study deleted meanwhile is not made again
    write: Write = write_whole if output is None else write_output
    notes, lacking = _write(opened, file, write, every, bootstrap, level)
    if shown:
        _show(file)
    if every and lacking:
        trials = "1 trial has" if lacking == 1 else f"{lacking:,} trials have"
        console.print(
            f"wrote {file}; {trials} yet to end. Rewriting it every {every} s; Ctrl-C stops.",
            soft_wrap=True,
        )
        notes = _rewrite(opened, file, write, every, bootstrap, level)
    for note in notes:
        console.print(note, soft_wrap=True)
    console.print(f"wrote {file}, {file.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
    for study in (
        opened if file.is_file() else ()
    ):  # what was written into a pipe is not there to upload
        console.print(try_to_log(study, [file], None, tracking), soft_wrap=True)


def _rewrite(
    studies: list[Study], file: Path, write: Write, every: int, bootstrap: int, level: float
) -> list[str]:
    """Rewrite the page until all trials have ended, or until Ctrl-C; returns the notes of the last one."""
    from study.store.study import open_directory

    try:
        lacking = 1
        while lacking:
            time.sleep(every)
            studies = [
                open_directory(each.directory, each.name) for each in studies
            ]  # it may get more trials
            notes, lacking = _write(studies, file, write, every, bootstrap, level)
    except KeyboardInterrupt:
        notes, _ = _write(studies, file, write, None, bootstrap, level)
    return notes


def _write(
    studies: list[Study], file: Path, write: Write, every: int | None, bootstrap: int, level: float
) -> tuple[list[str], int]:
    """Write the page from the storage as it is now; returns its notes and how many trials have yet to end.

    every: seconds after which the page reloads itself, unless all have ended.
    """
    from study.analysis.states import done, snapshot, summed
    from study.answer.answer import answer
    from study.confirmation.results import confirmation_of
    from study.report.html import write_page
    from study.report.page_data import gather, gather_page
    from study.store.confirmed import missing_confirmation
    from study.uncertainty.bootstrap import analyse_front
    from trainables.fields import FieldError

    gathered, lacking = [], 0
    for study in studies:
        now, analysis, said, refused = snapshot(study), None, None, None
        try:
            aside = now.ranking.set_aside
            analysis = (
                analyse_front(study, now.records, bootstrap, level, aside) if bootstrap else None
            )
            said = answer(study, level).to_plain()
        except FieldError as error:  # a missing or altered file: the page reports it instead
            refused = f"No {'answer' if analysis or not bootstrap else 'intervals'}: {error}"
        confirmation = confirmation_of(study)
        found = gather(study, now.records, analysis, confirmation, now.alive)
        notes = [*found["notes"], *filter(None, (refused, missing_confirmation(study)))]
        found |= {"answer": said, "notes": notes, "refused": bootstrap > 0 and analysis is None}
        gathered.append(found)
        counts = summed(now.counts.values())
        lacking += counts["planned"] - done(counts)
        if confirmation is not None:
            lacking += confirmation.study.lacking(confirmation.study.records())
            lacking += sum(len(row.records) - len(row.tests) for row in confirmation.rows)
    made = f"{datetime.now():%d %B %Y, %H:%M}"
    write_page(file, gather_page(gathered, made, every if lacking else None), write)
    return [note for found in gathered for note in found["notes"]], lacking


def _show(file: Path) -> None:
    import webbrowser

    if not webbrowser.open(file.as_uri()):
        console.print("could not start a browser; open the file yourself.")
