"""MLflow made complete from the ledger."""

from __future__ import annotations

import click

from study.terminal import console, storage_option, tracking_option


@click.command()
@click.argument("study")
@storage_option
@tracking_option
def sync(study: str, storage: str | None, tracking: str | None) -> None:
    """Complete in MLflow what a server that was away, or a kill, has left out. The ledger is what counts."""
    from study.stored import check_home, open_study
    from study.tracking import sync as sync_study
    from study.uris import public_uri

    opened = open_study(study, storage)
    check_home(opened)
    uri = opened.tracking(tracking)
    report = sync_study(opened, uri)
    console.print(f"{report.written} trials written, {report.present} were there, at {public_uri(uri)}", soft_wrap=True)
