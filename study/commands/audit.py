"""Check that every trial is counted once."""

from __future__ import annotations

import json
from typing import Any

import click

from study.terminal.console import FAILED, console, json_option, storage_option, tracking_option


@click.command()
@click.argument("study")
@storage_option
@tracking_option
@json_option
def audit(study: str, storage: str | None, tracking: str | None, as_json: bool) -> None:
    """Prove that every planned trial is counted once.

    Compares the ledger, MLflow, files and logs of STUDY, and prints each problem with its fix. Writes nothing. Exits
    with code 1 if there are problems. While the study is running, unfinished work is shown as pending.
    """
    from study.audit.audit import audit as audit_study
    from study.store.study import open_study

    opened = open_study(study, storage)
    report = audit_study(opened, opened.tracking(tracking))
    if as_json:
        click.echo(json.dumps(report.to_json()))
    else:
        _print(report)
    if not report.clean:
        raise SystemExit(FAILED)


def _print(report: Any) -> None:
    from study.terminal.layout import Table

    made = Table("check", ">counted", *([">pending"] if report.driver else []), ">problems")
    for check in report.checks:
        pending = [str(len(check.pending))] if report.driver else []
        made.add_row(check.title, str(check.counted), *pending, str(len(check.offenders) or "-"))
    console.print(made)
    epochs = report.epochs
    extra = ((epochs.damaged, "repeated after checkpoint damage"), (epochs.wasted, "wasted by superseded attempts"))
    more = "".join(f", {count} {why}" for count, why in extra if count)
    console.print(
        f"epochs: {epochs.trained} trained, {epochs.needed} needed, {epochs.repeated} repeated"
        f" (guaranteed: at most {epochs.promised}){more}"
    )
    for check in report.checks:
        for offender in check.offenders:
            console.print(str(offender), soft_wrap=True)
        for note in check.notes:
            console.print(f"{check.name}: {note}", soft_wrap=True)
    if report.note is not None:
        console.print(f"note: {report.note}", soft_wrap=True)
    if report.driver:
        console.print("another calstudy process is running this study; audit again once it has finished.")
    problems = sum(len(check.offenders) for check in report.checks)
    counts = f"{report.planned} trials planned, {report.lost} lost, {report.duplicated} duplicated"
    console.print(f"{report.study}: {f'{problems} problems' if problems else 'clean'}; {counts}", style="bold")
