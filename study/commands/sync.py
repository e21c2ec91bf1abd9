"""Upload trials missing from MLflow."""

from __future__ import annotations

import click

from study.terminal.console import console, storage_option, tracking_option


@click.command()
@click.argument("study")
@storage_option
@tracking_option
def sync(study: str, storage: str | None, tracking: str | None) -> None:
    """Upload trials missing from MLflow after an outage or crash. The ledger is the source of truth."""
    from study.schema.uris import public_uri
    from study.store.study import check_home, open_study
    from study.tracking.projection import sync as sync_study

    opened = open_study(study, storage)
    check_home(opened)
    uri = opened.tracking(tracking)
    report = sync_study(opened, uri)
    counts = f"{report.written} trials uploaded, {report.present} already there"
    console.print(f"{counts}; {public_uri(uri)}", soft_wrap=True)
