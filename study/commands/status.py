"""Show the progress of a study."""

from __future__ import annotations

import json

import click

from study.terminal.console import console, json_option, storage_option


@click.command()
@click.argument("study")
@storage_option
@json_option
def status(study: str, storage: str | None, as_json: bool) -> None:
    """Show the progress of each method.

    Counts planned, complete, pruned, failed and running trials, and those still to do. STUDY is its directory, its
    spec, or its name under the storage; it may be running elsewhere.
    """
    from study.store.ledger import driver_is_alive
    from study.store.study import open_study
    from study.terminal.tables import failures_table, status_counts, status_table

    opened = open_study(study, storage)
    records, alive = opened.records(), driver_is_alive(opened.directory)
    counts = status_counts(opened, records, alive)
    if as_json:
        click.echo(json.dumps({"name": opened.name, "methods": counts}))
        return
    console.print(f"{opened.name} in {opened.directory}", soft_wrap=True)
    console.print(status_table(counts))
    failures = failures_table(records)
    if failures is not None:
        console.print(failures)
    interrupted = sum(record.state == "running" for found in records.values() for record in found)
    lacking = opened.lacking(records)
    if alive:
        console.print("another calstudy process is running this study.")
    elif lacking:
        cut = f", {interrupted} of them interrupted" if interrupted else ""
        console.print(f"{lacking} trials are missing{cut}, and the study is not running. Resume: {opened.goes_on}")
