"""Whether every trial is counted once."""

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

    The ledger, MLflow, the files and the logs of a study are compared; whatever is off is named with its mend. Nothing
    is written. Exit code 1 when anything is off. While a driver is at work, what it has still to do is pending.
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
    from study.terminal.tables import table

    made = table("check", ">counted", *([">pending"] if report.driver else []), ">off")
    for check in report.checks:
        pending = [str(len(check.pending))] if report.driver else []
        made.add_row(check.title, str(check.counted), *pending, str(len(check.offenders) or "-"))
    console.print(made)
    epochs = report.epochs
    extra = ((epochs.damaged, "for damaged checkpoints"), (epochs.wasted, "in vain by attempts cut off"))
    more = "".join(f", {count} {why}" for count, why in extra if count)
    console.print(
        f"epochs: {epochs.trained} trained, {epochs.needed} needed, {epochs.repeated} repeated"
        f" (promised: at most {epochs.promised}){more}"
    )
    for check in report.checks:
        for offender in check.offenders:
            console.print(str(offender), soft_wrap=True)
        for note in check.notes:
            console.print(f"{check.name}: {note}", soft_wrap=True)
    if report.note is not None:
        console.print(f"note: {report.note}", soft_wrap=True)
    if report.driver:
        console.print("a driver is at work; what is pending is proved once it has ended.")
    off = sum(len(check.offenders) for check in report.checks)
    counts = f"{report.planned} trials planned, {report.lost} lost, {report.duplicated} duplicated"
    console.print(f"{report.study}: {f'{off} off' if off else 'clean'}; {counts}", style="bold")
