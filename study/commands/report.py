"""Report a study as an HTML page or a table for a paper."""

from __future__ import annotations

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


@click.command()
@click.argument("studies", metavar="STUDY...", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["html", "latex", "csv", "md"]), default="html", show_default=True)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="F", help="File to write.")
@click.option("--open", "shown", is_flag=True, help="Open the page in the browser.")
@bootstrap_option
@interval_option
@storage_option
@tracking_option
def report(
    studies: tuple[str, ...],
    form: str,
    output: Path | None,
    shown: bool,
    bootstrap: int,
    level: float,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Write an HTML report, or a table for a paper.

    The self-contained page shows the Pareto front, trials, budgets, failures, noise and how to reproduce the study. It
    is written to STUDY/report.html (for several studies, to report.html next to the first) and uploaded to each
    study's MLflow run.

    --format latex, csv or md makes a table instead: methods by error, NLL and calibration errors, before and after
    temperature scaling. It is on the test split for a confirmed study and otherwise on validation; the caption says
    which. Each of several studies (data sets) is a block of one table. Printed, or written to --output.
    """
    check_resamples(bootstrap, level)
    if form == "html":
        _page(studies, output, shown, bootstrap, level, storage, tracking)
    else:
        _table(studies, form, output, bootstrap, level, storage)


# ---- the table -----------------------------------------------------------------------------------------------------


def _table(
    studies: tuple[str, ...], form: str, output: Path | None, bootstrap: int, level: float, storage: str | None
) -> None:
    from study.report.paper_table import CSV, caption, to_csv, to_latex, to_markdown

    table = _blocks(studies, bootstrap, level, storage)
    text = {"latex": to_latex, "csv": to_csv, "md": to_markdown}[form](table)
    if form == "csv":  # no room for a caption
        errors.print(caption(table, CSV))
    if output is None:
        click.echo(text, nl=False)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    console.print(f"wrote {output}", soft_wrap=True)


def _blocks(studies: tuple[str, ...], bootstrap: int, level: float, storage: str | None) -> Table:
    from study.report.comparison import combine
    from study.store.study import open_study
    from trainables.fields import FieldError

    opened = [open_study(study, storage) for study in studies]
    for found in opened:
        _refuse_confirmation(found)
    blocks, notes = [], []
    for found in opened:
        try:
            blocks.append(_block(found, bootstrap, level))
        except FieldError as error:
            notes.append(f"left out: {error}".rstrip("."))
    return combine(blocks, notes)


def _block(study: Study, bootstrap: int, level: float) -> Block:
    from study.confirmation.results import confirmation_of, default_texts
    from study.report import comparison as tables
    from trainables.fields import FieldError

    confirmation, records = confirmation_of(study), study.records()
    if confirmation is None or not any(row.tests for row in confirmation.rows):
        confirmation, block = None, tables.block_of_search(study, records)
    else:
        rows = [tables.TableRow(row.label, row.role, row.tests) for row in confirmation.rows]
        defaults = [f"{label}: {text}" for label, text in default_texts(confirmation).items()]
        block = tables.block_of_tests(study, rows, "on each seed's whole validation split", defaults)
    if not bootstrap:
        return block
    try:
        if confirmation is None:
            networks = tables.networks_on_validation(study, block.rows, records)
        else:
            networks = tables.networks_on_test(confirmation)
        return tables.with_ties(block, networks, bootstrap, level)
    except FieldError as error:  # a missing or altered file: the caption says that nothing is marked as tied
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
    bootstrap: int,
    level: float,
    storage: str | None,
    tracking: str | None,
) -> None:
    from study.confirmation.results import confirmation_of
    from study.report.html import write_page
    from study.report.page_data import gather, gather_page
    from study.store.states import snapshot
    from study.store.study import open_study
    from study.tracking.artifacts import try_to_log
    from study.uncertainty.bootstrap import analyse_front
    from trainables.fields import FieldError

    opened = list({found.directory: found for found in (open_study(study, storage) for study in studies)}.values())
    for study in opened:
        _refuse_confirmation(study)
    first = opened[0].directory
    file = (output or (first if len(opened) == 1 else first.parent) / "report.html").absolute()
    gathered = []
    for study in opened:
        now, analysis, refused = snapshot(study), None, None
        try:
            analysis = analyse_front(study, now.records, bootstrap, level) if bootstrap else None
        except FieldError as error:  # a missing or altered file: the page reports it instead of intervals
            refused = f"No intervals: {error}"
        found = gather(study, now.records, analysis, confirmation_of(study), now.alive)
        found["notes"] += [refused] if refused else []
        gathered.append(found)
    write_page(file, gather_page(gathered, f"{datetime.now():%d %B %Y, %H:%M}"))
    for note in (note for found in gathered for note in found["notes"]):
        console.print(note, soft_wrap=True)
    console.print(f"wrote {file}, {file.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
    for study in opened:
        console.print(try_to_log(study, [file], None, tracking), soft_wrap=True)
    if shown:
        _show(file)


def _show(file: Path) -> None:
    import webbrowser

    if not webbrowser.open(file.as_uri()):
        console.print("could not start a browser; open the file yourself.")
