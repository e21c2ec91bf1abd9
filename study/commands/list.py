"""List what a study can use."""

from __future__ import annotations

from pathlib import Path

import click

from study.terminal.console import (
    console,
    json_option,
    print_json,
)


@click.command()
@click.argument("kind", type=click.Choice(["methods", "spaces", "datasets", "models", "metrics"]))
@click.option(
    "--extensions",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Also what is in this folder of your own.",
)
@json_option
def list(kind: str, extensions: Path | None, as_json: bool) -> None:
    """List what a study can use, with settings and sources."""
    from study.terminal.catalogue import catalogue, print_catalogue
    from trainables.plugins import use_extensions

    use_extensions(extensions)
    rows = catalogue(kind)
    if as_json:
        print_json(rows)
    else:
        print_catalogue(console, kind, rows)
