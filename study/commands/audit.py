"""Check that every trial is counted once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from study.terminal.console import (
    FAILED,
    console,
    json_option,
    print_json,
    storage_option,
    tracking_option,
)

if TYPE_CHECKING:
    from study.audit.result import AuditReport


@click.command()
@click.argument("study")
@storage_option
@tracking_option
@click.option(
    "--histories",
    type=click.Choice(["all"]),
    help=(
        "Compare the epochs of all trials in MLflow. Default: of 200 drawn ones on a server, of all"
        " in a database."
    ),
)
@json_option
def audit(
    study: str, storage: str | None, tracking: str | None, histories: str | None, as_json: bool
) -> None:
    """Prove that every planned trial is counted once.

    Compares the ledger, MLflow and the files of STUDY, and prints each problem with its fix. On a
    server it compares every run, and the epochs of a sample. Writes nothing. Exits with code 1 if
    there are problems. Trials that are interrupted or to do are no problem; what the next `run`, or
    the one at work, uploads or cleans up is shown as pending.
    """
    from study.audit.audit import audit as audit_study
    from study.store.study import open_study

    opened = open_study(study, storage)
    report = audit_study(opened, opened.tracking(tracking), math.inf if histories else None)
    if as_json:
        print_json(report.to_json())
    else:
        _print(report, opened.goes_on)
    if not report.clean:
        raise SystemExit(FAILED)


def _print(report: AuditReport, goes_on: str) -> None:
    from study.analysis.states import in_words, stopped_line
    from study.terminal.layout import Table

    waits = report.driver or any(check.pending for check in report.checks)
    columns = ["check", ">counted", ">problems"]
    if waits:
        columns.insert(2, ">pending")
    made = Table(*columns)
    for check in report.checks:
        cells = [check.title, str(check.counted), str(len(check.offenders) or "-")]
        if waits:
            cells.insert(2, str(len(check.pending)))
        made.add_row(*cells)
    console.print(made)
    for check in report.checks:
        for offender in check.offenders:
            console.say(str(offender))
        for note in check.notes:
            console.say(f"{check.name}: {note}")
    if report.note is not None:
        console.say(f"note: {report.note}")
    if report.driver:
        console.print(
            "another calstudy process is running this study; audit again once it has finished."
        )
    elif line := stopped_line(report.states, goes_on):
        console.print(line)
    problems = sum(len(check.offenders) for check in report.checks)
    states = f"{report.planned} trials planned: {in_words(report.states)}"
    counts = f"{states}; {report.lost} lost, {report.duplicated} duplicated"
    verdict = f"{problems} problems" if problems else "clean"
    console.print(f"{report.study}: {verdict}; {counts}", style="bold")
