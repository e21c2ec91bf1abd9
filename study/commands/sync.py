"""MLflow made complete from the ledger."""

from __future__ import annotations

import click

from study.terminal.console import console, storage_option, tracking_option


@click.command()
@click.argument("study")
@storage_option
@tracking_option
def sync(study: str, storage: str | None, tracking: str | None) -> None:
    """Complete in MLflow what a server that was away, or a kill, has left out. The ledger is what counts."""
    from study.schema.uris import public_uri
    from study.store.study import check_home, open_study
    from study.tracking.projection import sync as sync_study

    opened = open_study(study, storage)
    check_home(opened)
    uri = opened.tracking(tracking)
    report = sync_study(opened, uri)
    console.print(f"{report.written} trials written, {report.present} were there, at {public_uri(uri)}", soft_wrap=True)
