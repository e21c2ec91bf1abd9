"""All figures of a study."""

from __future__ import annotations

from pathlib import Path

import click

from study.terminal import console, storage_option

NAMES = ("front", "reliability", "hypervolume", "hyperparameters", "gamma", "learning", "entropy")


@click.command()
@click.argument("study")
@click.option("--format", "suffix", type=click.Choice(["png", "pdf", "svg"]), default="png", show_default=True)
@click.option("--only", type=click.Choice(NAMES), help="This one alone.")
@click.option("--trial", metavar="METHOD/NUMBER", help="Whose reliability is drawn; default: the knee's.")
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Default: STUDY/figures.")
@storage_option
def figures(
    study: str, suffix: str, only: str | None, trial: str | None, output: Path | None, storage: str | None
) -> None:
    """Draw all that the study's files allow: front, reliability, hypervolume over trials and compute, searched values
    against objectives, gamma, learning curves, entropy where right and where wrong.

    What cannot be drawn is named with its reason. All of it is of the validation split.
    """
    from study.gallery import Gallery, draw
    from study.stored import open_outline
    from trainables.fields import FieldError

    opened = open_outline(study, storage)
    gallery = Gallery(opened, opened.records(), trial)
    written, reasons = draw(gallery, output or opened.directory / "figures", suffix, [only] if only else NAMES)
    if not written:
        raise FieldError("figures", "; ".join(reason.rstrip(".") for reason in reasons) + ".")
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True)
    for reason in reasons:
        console.print(f"not drawn: {reason}", soft_wrap=True)
