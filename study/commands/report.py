"""Report a study as an HTML page or a table for a paper."""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    objectives_option,
    storage_option,
    tracking_option,
)
from study.terminal.steps import Steps
from trainables.problems import FieldError, nearest

if TYPE_CHECKING:
    from study.answer.choice import Choice
    from study.answer.confirmation import Results
    from study.report.comparison import Block, ComparisonTable
    from study.report.page_data import Plain
    from study.store.study import StudyFolder
    from study.store.trials import TrialRecord


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
@click.option(
    "--metrics",
    "named",
    metavar="NAMES",
    help="Metrics of a table, such as error,ece,mce; all: those that papers print, and your own.",
)
@click.option(
    "--against",
    "row",
    metavar="ROW",
    help="Of a table: each mean less that of this row, or method, with interval and word.",
)
@objectives_option
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
    named: str | None,
    row: str | None,
    objectives: str | None,
    bootstrap: int,
    level: float,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Write an HTML report, or a table for a paper.

    The first screen of the self-contained page has the model to take and how sure that is. Test
    results, the Pareto front, trials, learning curves, searched values, budgets, failures and how
    to reproduce the study are folded below it. It is written to STUDY/report.html (for several
    studies, to report.html next to the first) and uploaded to each study's MLflow run.

    --every 60 rewrites the page each minute while the study runs, on any machine that sees the
    storage, and the page reloads itself. It ends when all trials have ended, or at Ctrl-C; only the
    last page is uploaded.

    --format latex, csv or md makes a table instead: methods by error, NLL, Brier score and the
    objectives, or by --metrics, before and after temperature scaling. It is on the test split for a
    confirmed study and otherwise on validation; the caption says which. --against shows differences
    from one row, each with its interval and word. Each of several studies (data sets) is a block of
    one table. Printed, or written to --output.

    --objectives accuracy,nll shows other metrics than the study searched as its objectives; the
    page is then STUDY/report-accuracy-nll.html and not uploaded.
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
    for option, given in (("--metrics", named), ("--against", row)):
        if given is not None and form == "html":
            raise click.UsageError(f"{option} is for a table. Add --format latex, csv or md.")
    if row is not None and not bootstrap:
        raise click.UsageError("--against compares by resamples. Leave out --bootstrap 0.")
    from study.store.study import open_study
    from study.store.with_objectives import with_objectives

    opened = [with_objectives(open_study(name, storage), objectives) for name in studies]
    for study in opened:
        _refuse_confirmation(study)
    if form == "html":
        _page(opened, output, shown, every, bootstrap, level, tracking)
    else:
        asked = None if named is None else _metrics(named, opened)
        _table(_blocks(opened, asked, row, bootstrap, level), form, output)


def _metrics(named: str, studies: Sequence[StudyFolder]) -> list[str]:
    """The metrics of a table. Raises FieldError."""
    from study.report.table_columns import available_in

    known = available_in(studies)
    if named == "all":
        return known
    names = [name.strip() for name in named.split(",")]
    for name in names:
        if name not in known:
            found = f"there is no column '{name}'"
            raise FieldError("--metrics", found, nearest(name, [*known, "all"]))
    return names


def _refuse_confirmation(study: StudyFolder) -> None:

    if study.confirms is not None:
        raise FieldError(
            study.name,
            f"confirms '{study.confirms}', whose report covers both",
            f"Run: calstudy report {study.confirms}",
        )


# ---- the table -----------------------------------------------------------------------------------


def _table(table: ComparisonTable, form: str, output: Path | None) -> None:
    from study.report.paper_table import CSV, caption, to_csv, to_latex, to_markdown
    from trainables.files.output import write_output

    text = {"latex": to_latex, "csv": to_csv, "md": to_markdown}[form](table)
    if form == "csv":  # no room for a caption
        errors.print(caption(table, CSV))
    if output is None:
        click.echo(text, nl=False)
        return
    write_output(output, text.encode())
    console.say(f"wrote {output}")


def _blocks(
    studies: Sequence[StudyFolder],
    asked: Sequence[str] | None,
    row: str | None,
    bootstrap: int,
    level: float,
) -> ComparisonTable:
    from study.answer.confirmation import results_of
    from study.report.comparison import against, combine
    from study.report.table_columns import names_shown

    names = asked
    if names is None:
        names = names_shown(one for study in studies for one in study.objectives)
    blocks = []
    notes = []
    for study in studies:
        found = results_of(study)
        if found.missing:
            notes.append(found.missing)
        try:
            block = _block(found)
        except FieldError as error:
            notes.append(f"left out: {error}".rstrip("."))
            continue
        if row is not None:
            block = against(block, row)
        block = _compared(found, block, names, bootstrap, level)
        if row is not None and not block.methods:
            what = f"the predictions of {block.study} are not compared"
            raise FieldError("--against", what, "Leave it out: the table says why.")
        blocks.append(block)
    return combine(blocks, notes, asked)


def _block(found: Results) -> Block:
    from study.answer.confirmation import default_notes
    from study.report import comparison as tables

    confirmation = found.confirmation
    if confirmation is None or not any(row.tests for row in confirmation.rows):
        return tables.block_of_search(found.study, found.records)
    rows = [tables.TableRow(row.name, row.role, row.tests) for row in confirmation.rows]
    fitted_on = "on each seed's whole validation split"
    said = [*default_notes(confirmation), *confirmation.cautions]
    return tables.block_of_tests(found.study, rows, fitted_on, said)


def _compared(
    found: Results, block: Block, names: Sequence[str], bootstrap: int, level: float
) -> Block:
    """names: of the metrics that the table shows."""
    from study.answer.networks import networks_on_test
    from study.report import comparison as tables

    study = found.study
    if few := study.recorded.too_few(block.split):
        return replace(block, notes=(*block.notes, f"nothing is compared: {few}"))
    if not bootstrap:
        return block
    try:
        if block.split == "validation":
            networks = tables.networks_on_validation(study, block.rows, found.records)
        else:
            assert found.confirmation is not None
            by_label = networks_on_test(found.confirmation)
            networks = {row.name: by_label[row.label] for row in found.confirmation.rows}
        return tables.with_ties(block, networks, bootstrap, level, names)
    except FieldError as error:
        # A missing or altered file: the caption says that nothing was compared.
        errors.print(f"{study.name}: {error}")
        return block


# ---- the page ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Page:
    """A page's content, for `write_page`; what to say of it; how many trials have yet to end."""

    content: Plain
    notes: list[str]
    lacking: int


def _page(
    named: Sequence[StudyFolder],
    output: Path | None,
    shown: bool,
    every: int | None,
    bootstrap: int,
    level: float,
    tracking: str | None,
) -> None:
    from study.report.html import write_page
    from study.tracking.artifacts import try_to_log
    from trainables.files.atomic import write_whole
    from trainables.files.output import write_output

    studies = list({study.directory: study for study in named}.values())
    folder = studies[0].directory
    if len(studies) > 1:
        folder = folder.parent
    file = (output or folder / f"report{studies[0].suffix}.html").absolute()
    # Once: a study deleted meanwhile is not made again.
    file.parent.mkdir(parents=True, exist_ok=True)
    for line in dict.fromkeys(study.afterwards for study in studies if study.afterwards):
        console.say(line)

    def write(studies: Sequence[StudyFolder], every: int | None) -> Page:
        with Steps(errors) as steps:
            steps("computing the page")
            page = _whole(studies, every, bootstrap, level)
        write_page(file, page.content, write_whole if output is None else write_output)
        return page

    page = write(studies, every)
    if shown and not webbrowser.open(file.as_uri()):
        console.print("could not start a browser; open the file yourself.")
    if every and page.lacking:
        trials = "1 trial has" if page.lacking == 1 else f"{page.lacking:,} trials have"
        console.say(
            f"wrote {file}; {trials} yet to end. Rewriting it every {every} s; Ctrl-C stops."
        )
        page = _rewrite(studies, every, write)
    for note in page.notes:
        console.say(note)
    console.say(f"wrote {file}, {file.stat().st_size / 1e6:.1f} MB")
    if file.is_file():  # what was written into a pipe is not there to upload
        for study in studies:
            if study.given is None:
                console.say(try_to_log(study, [file], None, tracking))


def _reopened(study: StudyFolder) -> StudyFolder:
    """The study as it is now, seen by the same objectives."""
    from study.store.study import open_directory
    from study.store.with_objectives import with_objectives

    return with_objectives(open_directory(study.directory, study.name), study.objectives)


def _rewrite(
    studies: Sequence[StudyFolder],
    every: int,
    write: Callable[[Sequence[StudyFolder], int | None], Page],
) -> Page:
    """Rewrite the page until all trials have ended or Ctrl-C; returns the last."""
    try:
        while True:
            time.sleep(every)
            # It may get more trials.
            studies = [_reopened(each) for each in studies]
            page = write(studies, every)
            if not page.lacking:
                return page
    except KeyboardInterrupt:
        return write(studies, None)


def _whole(studies: Sequence[StudyFolder], every: int | None, bootstrap: int, level: float) -> Page:
    """The page from the storage as it is now.

    every: seconds after which the page reloads itself, unless all have ended.
    """
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
    return Page(gather_page(gathered, made, every if lacking else None), notes, lacking)


def _gathered(study: StudyFolder, bootstrap: int, level: float) -> tuple[Plain, int]:
    """One study's part of the page, and how many of its trials have yet to end."""
    from study.analysis.left_out import left_out_of
    from study.analysis.states import Snapshot, done, summed
    from study.answer.answer import answer
    from study.answer.confirmation import results_of
    from study.answer.phrases import first_upper
    from study.answer.sizes import sizes_of
    from study.report.first_screen import first_screen
    from study.report.page_confirmation import shown_floors
    from study.report.page_data import gather
    from study.store.driver_lock import driver_is_alive
    from study.uncertainty.bootstrap import analyse_front
    from study.uncertainty.without_intervals import no_intervals_of

    alive = driver_is_alive(study.directory, study.ledger)  # before the ledger is read
    results = results_of(study)
    now = Snapshot.of(study, results.records, alive)
    said = analysis = taken = first = None
    refused: list[str] = []
    lost: Sequence[str] = ()
    try:
        aside = now.ranking.excluded
        if bootstrap:
            left_out = left_out_of(study, now.records, now.ranking.front)
            lost = left_out.lines
            # Of none it raises what is wrong with the first.
            trials = left_out.kept(now.records.complete) or now.records
            if few := study.recorded.too_few("validation"):
                refused.append(f"No intervals: {few}.")
            else:
                analysis = analyse_front(study, trials, bootstrap, level, aside)
        whole = answer(results, level)
        said, taken = whole.to_plain(), whole.choice
        first = first_screen(whole, now.ranking, analysis, level)
    except FieldError as error:  # a missing or altered file: the page reports it instead
        refused.append(f"No {'answer' if analysis or not bootstrap else 'intervals'}: {error}")
    counts = summed(now.counts.values())
    lacking = counts["planned"] - done(counts)
    confirmation = results.confirmation
    sizes = None
    unread: Sequence[str] = ()
    if confirmation is not None:
        objectives = [objective.metric for objective in study.objectives]
        sizes = sizes_of(confirmation, shown_floors(study), objectives, bootstrap, level)
        unread = sizes.problems
        if confirmation.study is not study:
            lacking += confirmation.study.lacking(confirmation.records)
        lacking += sum(len(row.records) - len(row.tests) for row in confirmation.rows)
    found = gather(study, now.records, analysis, confirmation, now.alive, sizes)
    notes = [*found["notes"], *filter(None, (*refused, results.missing, *unread))]
    if analysis is not None:
        without = no_intervals_of(one.metric for one in study.objectives)
        notes += [*lost, *([f"{first_upper(without)}."] if without else [])]
    if study.recorded.marked:
        maps, problem = _maps(study, taken, now.ranking.front)
        found["maps"] = maps
        notes += [problem] if problem else []
    if taken is not None and not alive:
        serves = now.ranking.deployed.serves
        found["calibrators"] = _calibrators(taken, serves, bootstrap, level)
    found |= {
        "answer": said,
        "first": first,
        "notes": notes,
        "refused": bootstrap > 0 and analysis is None,
    }
    return found, lacking


def _calibrators(taken: Choice, serves: str, bootstrap: int, level: float) -> Plain | None:
    """Of the trial that the answer names; None where its predictions cannot be read."""
    from study.report.page_calibrators import shown_calibrators

    try:
        return shown_calibrators(taken, serves, bootstrap, level)
    except FieldError:  # which the notes say
        return None


def _maps(
    study: StudyFolder, taken: Choice | None, front: Sequence[TrialRecord]
) -> tuple[list[Plain], str]:
    """Four images with masks, of the trial that the answer names, else the first of the front; and
    why there are none."""
    from study.report.maps import maps_of, plain_of

    owner, record = (taken.study, taken.record) if taken else (study, next(iter(front), None))
    if record is None:
        return [], ""
    try:
        return [plain_of(found, record) for found in maps_of(owner, record)], ""
    except FieldError as error:
        return [], f"No maps of images: {error}"
