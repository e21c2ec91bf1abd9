"""A study removed from disk, with its confirmation."""

from __future__ import annotations

import click

from study.terminal.console import (
    ask_to_delete,
    console,
    human_bytes,
    storage_option,
    tracking_option,
    yes_option,
)


@click.command()
@click.argument("study")
@click.option("--tracking-too", is_flag=True, help="Delete its MLflow runs as well.")
@yes_option
@storage_option
@tracking_option
def delete(
    study: str, tracking_too: bool, yes: bool, storage: str | None, tracking: str | None
) -> None:
    """Delete a study and its confirmation.

    Lists what it will delete, with sizes, and asks first. Registered models stay; MLflow runs stay
    unless you give --tracking-too. If it is interrupted, run it again to complete the deletion.
    """
    from study.schema.uris import public_uri
    from study.store.confirmed import SUFFIX
    from study.store.removal import remove, set_aside, size_of, to_delete
    from study.store.study import directory_of, open_study
    from study.tracking.removal import delete_runs

    found = to_delete(directory_of(study, storage), SUFFIX) or [open_study(study, storage)]
    for each in found:
        where = "" if each.ledger is None else f", and its trials in {public_uri(each.ledger)}"
        console.say(f"{human_bytes(size_of(each.directory)):>8}  {each.directory}{where}")
        if tracking_too and each.id:
            console.say(f"          its runs in MLflow at {public_uri(each.tracking(tracking))}")
    ask_to_delete(yes)
    for each in found:
        aside = set_aside(each)
        if tracking_too and aside.id:
            delete_runs(aside, aside.tracking(tracking))
        remove(aside)
        console.print(f"deleted {each.name}")
