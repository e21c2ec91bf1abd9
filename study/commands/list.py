"""List what a study can use, or the studies that there are."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from study.terminal.console import (
    console,
    human_bytes,
    json_option,
    print_json,
    storage_option,
)
from trainables.problems import UserError

STUDIES = "studies"


@click.command()
@click.argument(
    "kind", type=click.Choice(["methods", "spaces", "datasets", "models", "metrics", STUDIES])
)
@click.option(
    "--extensions",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Also what is in this folder of your own.",
)
@storage_option
@json_option
def list(kind: str, extensions: Path | None, storage: str | None, as_json: bool) -> None:
    """List what a study can use, with settings and sources.

    `studies` lists those under the storage: state, trials that have ended of those planned, size on
    disk, and age.
    """
    if kind == STUDIES:
        _list_studies(storage, as_json)
        return
    from study.terminal.catalogue import catalogue, print_catalogue
    from trainables.plugins import use_extensions

    use_extensions(extensions)
    rows = catalogue(kind)
    if as_json:
        print_json(rows)
    else:
        print_catalogue(console, kind, rows)


def _list_studies(storage: str | None, as_json: bool) -> None:
    from study.store.study import storage_root
    from study.terminal.layout import Table

    root = storage_root(storage)
    rows = [_study(file.parent) for file in sorted(root.glob("*/study.yaml"))]
    if as_json:
        print_json(rows)
        return
    if not rows:
        console.say(f"no studies in {root}")
        return
    table = Table("study", "state", ">trials", ">size", ">age")
    for row in rows:
        trials = f"{row['ended']:,} of {row['planned']:,}" if row["planned"] else ""
        age = _age(row["created"]) if row["created"] else ""
        table.add_row(row["name"], row["state"], trials, human_bytes(row["bytes"]), age)
    console.print(table)
    for row in rows:
        if row["problem"]:
            console.say(row["problem"])


def _age(created: str) -> str:
    """`12 min`, `3.5 h`, `21 days`."""
    from study.terminal.progress import human_seconds

    age = datetime.now(UTC) - datetime.fromisoformat(created)
    return f"{age.days} days" if age.days > 1 else human_seconds(age.total_seconds())


def _bytes(directory: Path) -> int:
    """Of all files below it; of a study that runs, some go meanwhile."""
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                size += (Path(folder) / name).lstat().st_size
    return size


def _study(directory: Path) -> dict[str, Any]:
    """A row of `list studies`. problem: why it cannot be read; empty if it can."""
    from study.analysis.states import done, snapshot, summed
    from study.store.study import open_directory

    row: dict[str, Any] = {
        "name": directory.name,
        "state": "unreadable",
        "ended": 0,
        "planned": 0,
        "bytes": _bytes(directory),
        "created": None,
        "problem": "",
    }
    try:
        opened = open_directory(directory, directory.name)
        now = snapshot(opened)
    except UserError as error:
        return {**row, "problem": str(error)}
    counts = summed(now.counts.values())
    ended, planned = done(counts), counts["planned"]
    state = "running" if now.alive else "complete" if ended == planned else "not finished"
    known = {"ended": ended, "planned": planned, "created": opened.recorded.created or None}
    return {**row, "state": state, **known}
