"""Which model to take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from study.terminal.console import console, interval_option, json_option, storage_option

if TYPE_CHECKING:
    from study.answer.answer import Answer
    from study.store.study import Study


@click.command()
@click.argument("study")
@interval_option
@storage_option
@json_option
def answer(study: str, level: float, storage: str | None, as_json: bool) -> None:
    """Say which model to take, how sure that is, and what to do next.

    Selected by validation alone, as `export` without --pick does: of the trials not significantly different from the
    knee of the Pareto front, the one with the lowest NLL, all as served. After `confirm`, of the confirmed models; the
    values are then those on the sealed test split. Trials that are set aside are never selected.
    """
    from study.answer.answer import answer as answer_of
    from study.store.study import open_study

    opened = open_study(study, storage)
    found = answer_of(opened, level)
    if as_json:
        click.echo(json.dumps(found.to_plain()))
    else:
        _print(found, opened, storage)


def conclude(study: Study, tracking: str | None, storage: str | None) -> bool:
    """Print the study's answer and put it first in its description in MLflow; False if MLflow does not take it."""
    from study.answer.answer import answer as answer_of
    from study.schema.uris import TrackingError
    from study.tracking.artifacts import describe
    from trainables.fields import FieldError

    try:
        found = answer_of(study)
    except FieldError as error:  # a missing or altered file
        console.print(f"which model to take is not known: {error}", soft_wrap=True)
        return True
    _print(found, study, storage)
    try:
        describe(study, study.tracking(tracking), found.sentences, found.next)
    except TrackingError as error:
        fix = f"write it with `calstudy sync {study.name}`."
        console.print(f"the answer is not in MLflow's description ({error}); {fix}", soft_wrap=True)
        return False
    return True


def _print(found: Answer, study: Study, storage: str | None) -> None:
    """The sentences, the first in bold; then what to do next, in commands that name the study as the user did."""
    first, *rest = found.sentences
    console.print(first, style="bold")
    for sentence in rest:
        console.print(sentence)
    where = "" if storage is None else f" --storage {storage}"
    for command, does in found.next:
        if command.startswith("calstudy report") and (page := _page(study)):
            console.print(f"All results on one page: {page}", soft_wrap=True)
        else:
            console.print(f"Next: {command}{where}  ({does})", soft_wrap=True)


def _page(study: Study) -> Path | None:
    """The report page, if it is newer than what it shows."""
    from study.store.confirmed import confirming_directory

    page = study.directory / "report.html"
    ledgers = [
        folder / "ledger.log" for folder in (study.directory, confirming_directory(study.directory))
    ]
    written = [file.stat().st_mtime for file in ledgers if file.exists()]
    return page if page.exists() and page.stat().st_mtime >= max(written, default=0.0) else None
