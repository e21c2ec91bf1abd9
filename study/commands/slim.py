"""Disk freed: the models of trials that are not on the front."""

from __future__ import annotations

import click

from study.terminal.console import ask_to_delete, console, human_bytes, storage_option, yes_option


@click.command()
@click.argument("study")
@click.option(
    "--keep",
    type=click.Choice(["front"]),
    default="front",
    help="Keep the models of trials on the front.",
)
@yes_option
@storage_option
def slim(study: str, keep: str, yes: bool, storage: str | None) -> None:
    """Delete the models of trials that are not on the Pareto front.

    Predictions, metrics and histories stay, so reports and intervals can still be made; a deleted
    model can no longer be exported. Trials keep their state. Models of a confirmation stay:
    `export` needs them.
    """
    from study.analysis.ranking import Ranking, on_a_front
    from study.store.removal import drop, droppable
    from study.store.study import open_study
    from trainables.problems import FieldError

    opened = open_study(study, storage)
    if opened.is_confirmation:
        raise FieldError(
            opened.name,
            "is a confirmation; `calstudy export` needs its models",
            "Name the study instead." if opened.confirms else "They stay.",
        )
    records = opened.records()
    kept = on_a_front(opened, Ranking(opened, records).counted)
    files = droppable(opened, records, kept)
    if not files:
        console.print("nothing to delete: no trial off the front has a model.")
        return
    size = human_bytes(sum(file.lstat().st_size for file in files))
    console.print(
        f"{size:>8}  {len(files)} models of trials that are not on the front; {len(kept)} stay"
    )
    ask_to_delete(yes)
    drop(opened, files)
    console.print(f"deleted {len(files)} models, {size}")
