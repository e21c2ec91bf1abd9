"""List what a study can use."""

from __future__ import annotations

import click

from study.terminal.console import (
    console,
    json_option,
    print_json,
)


@click.command()
@click.argument("kind", type=click.Choice(["methods", "spaces", "datasets", "models", "metrics"]))
@json_option
def list(kind: str, as_json: bool) -> None:
    """List what a study can use, with settings and sources."""
    from study.terminal.catalogue import catalogue, print_catalogue

    rows = catalogue(kind)
    if as_json:
        print_json(rows)
    else:
        print_catalogue(console, kind, rows)
