"""Upload trials missing from MLflow."""

from __future__ import annotations

from contextlib import suppress

import click

from study.terminal.console import FAILED, console, storage_option, tracking_option


@click.command()
@click.argument("study")
@storage_option
@tracking_option
def sync(study: str, storage: str | None, tracking: str | None) -> None:
    """Upload what MLflow lacks after an outage or crash.

    Finished trials, test results and the answer. The ledger is the source of truth.
    """
    from study.answer.answer import answer
    from study.schema.uris import public_uri
    from study.store.study import check_home, open_study
    from study.tracking.artifacts import describe
    from study.tracking.projection import sync as sync_study
    from trainables.fields import FieldError

    opened = open_study(study, storage)
    check_home(opened)
    uri = opened.tracking(tracking)
    report = sync_study(opened, uri)
    if opened.confirms is None:
        with suppress(FieldError):  # a missing or altered file: `calstudy answer` says which
            found = answer(opened)
            describe(opened, uri, found.sentences, found.next)
    counts = f"{report.written} trials uploaded, {report.present} already there"
    console.print(f"{counts}; {public_uri(uri)}", soft_wrap=True)
    if report.note is not None:
        console.print(f"tracking: {report.note}", soft_wrap=True)
    for line in report.damaged:
        console.print(f"not uploaded: {line}", soft_wrap=True)
    if report.damaged:
        raise SystemExit(FAILED)
