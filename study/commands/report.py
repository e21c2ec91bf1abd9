"""The page of one study or several: what they tell, in one file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from study.terminal import console, storage_option, tracking_option


@click.command()
@click.argument("studies", metavar="STUDY...", nargs=-1, required=True)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="F", help="Where the page goes.")
@click.option("--open", "shown", is_flag=True, help="Show it in the browser.")
@storage_option
@tracking_option
def report(
    studies: tuple[str, ...], output: Path | None, shown: bool, storage: str | None, tracking: str | None
) -> None:
    """One HTML page that needs nothing else: front, trials, budgets, failures, noise, how to do it again.

    Written to STUDY/report.html (of several studies to report.html beside the first), and among the artifacts of each
    study's run in MLflow.
    """
    from study.report import gather, gather_page
    from study.report_page import write_page
    from study.stored import open_study

    opened = list({found.directory: found for found in (open_study(study, storage) for study in studies)}.values())
    first = opened[0].directory
    file = (output or (first if len(opened) == 1 else first.parent) / "report.html").absolute()
    gathered = [gather(study, study.records()) for study in opened]
    write_page(file, gather_page(gathered, f"{datetime.now():%d %B %Y, %H:%M}"))
    for note in (note for study in gathered for note in study["notes"]):
        console.print(note, soft_wrap=True)
    console.print(f"wrote {file}, {file.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
    for study in opened:
        console.print(_log(study, file, tracking), soft_wrap=True)
    if shown:
        _show(file)


def _log(study: Any, file: Path, tracking: str | None) -> str:
    """Put it into MLflow; a server that is away costs a line and nothing else."""
    from study.mlflow_artifact import log_artifact
    from study.stored import check_home
    from study.uris import public_uri
    from trainables.fields import UserError

    try:
        check_home(study)
        uri = study.tracking(tracking)
        log_artifact(study, uri, file)
    except UserError as error:
        return f"not in MLflow: {error}"
    return f"in MLflow at {public_uri(uri)}, an artifact of the run {study.spec.name}"


def _show(file: Path) -> None:
    import webbrowser

    if not webbrowser.open(file.as_uri()):
        console.print("no browser could be started; open the file by hand.")
