"""What a study found, to be handed on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from study.terminal import console, errors, storage_option

if TYPE_CHECKING:
    from study.table import Table


@click.command()
@click.argument("studies", nargs=-1, required=True, metavar="STUDY...")
@click.option("--format", "form", required=True, type=click.Choice(["latex", "csv", "md"]), help="How it is written.")
@click.option("--output", type=click.Path(path_type=Path), metavar="F", help="Write it there; default: print it.")
@storage_option
def report(studies: tuple[str, ...], form: str, output: Path | None, storage: str | None) -> None:
    """The papers' table: methods by error, NLL and calibration errors, before and after temperature scaling.

    Figures are of the validation split, and the caption says so. Several studies (data sets) are blocks of one table.
    """
    from study.table_text import CSV, caption, to_csv, to_latex, to_markdown

    table = _table(studies, storage)
    text = {"latex": to_latex, "csv": to_csv, "md": to_markdown}[form](table)
    if form == "csv":  # it has no place for its caption
        errors.print(caption(table, CSV))
    if output is None:
        click.echo(text, nl=False)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    console.print(f"wrote {output}", soft_wrap=True)


def _table(studies: tuple[str, ...], storage: str | None) -> Table:
    from study.stored import open_outline
    from study.table import block_of_search, combine
    from trainables.fields import FieldError

    outlines = [open_outline(study, storage) for study in studies]
    blocks, notes = [], []
    for outline in outlines:
        try:
            blocks.append(block_of_search(outline, outline.records()))
        except FieldError as error:
            notes.append(f"left out: {error}".rstrip("."))
    return combine(blocks, notes)
