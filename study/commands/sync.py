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
    from study.answer.confirmation import results_of
    from study.commands.answer import write_answer
    from study.schema.uris import public_uri
    from study.store.home import check_home
    from study.store.study import open_study
    from study.tracking.projection import sync as sync_study
    from trainables.problems import FieldError

    opened = open_study(study, storage)
    check_home(opened)
    uri = opened.tracking(tracking)
    report = sync_study(opened, uri)
    if opened.confirms is None:
        with suppress(FieldError):  # a missing or altered file: `calstudy answer` says which
            results = results_of(opened)
            write_answer(results.study, uri, answer(results))
    counts = f"{report.written} trials uploaded, {report.present} already there"
    console.say(f"{counts}; {public_uri(uri)}")
    if report.note is not None:
        console.say(f"tracking: {report.note}")
    for line in report.damaged:
        console.say(f"not uploaded: {line}")
    if report.damaged:
        raise SystemExit(FAILED)
