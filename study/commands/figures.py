"""Draw the figures of a study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from study.terminal.console import (
    bootstrap_option,
    check_resamples,
    console,
    interval_option,
    objectives_option,
    storage_option,
    tracking_option,
)

if TYPE_CHECKING:
    from study.store.study import StudyFolder


@click.command()
@click.argument("study")
@click.option(
    "--format", "suffix", type=click.Choice(["png", "pdf", "svg"]), default="png", show_default=True
)
@click.option("--only", metavar="NAME", help="Draw only this figure; an unknown name lists all.")
@click.option(
    "--trial",
    metavar="METHOD/NUMBER",
    help="Trial of the reliability diagram and of maps, default: the model to take.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder; default: STUDY/figures.",
)
@objectives_option
@bootstrap_option
@interval_option
@storage_option
@tracking_option
def figures(
    study: str,
    suffix: str,
    only: str | None,
    trial: str | None,
    output: Path | None,
    objectives: str | None,
    bootstrap: int,
    level: float,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Draw every figure the study's files allow.

    Pareto front, reliability, hypervolume over trials and compute, searched values against
    objectives, gamma, learning curves, and, of a study with `diagnostics: true`, NLL and entropy of
    correct and wrong predictions (entropy) and the norms of last layer and features (norms). What
    is drawn by epoch is the mean over a method's seeds, in the band of their range; of a search it
    is the best trial. Of images with masks, four maps show image, mask, prediction, confidence and
    wrong pixels: the two of the largest errors, and two drawn by the seed; they are PNG, and need
    the trial's model and the data. All are on the validation split. Figures that cannot be drawn
    are listed with the reason. The figures are also uploaded to the study's MLflow run.

    --objectives accuracy,nll draws them by other metrics than the study searched, into
    STUDY/figures-accuracy-nll; these are not uploaded.
    """
    from study.store.study import open_study
    from study.store.with_objectives import with_objectives

    check_resamples(bootstrap, level)
    opened = with_objectives(open_study(study, storage), objectives)
    draw_figures(opened, console.say, output, suffix, only, trial, bootstrap, level, tracking)


def draw_figures(
    opened: StudyFolder,
    say: Callable[[str], None],
    output: Path | None,
    suffix: str,
    only: str | None,
    trial: str | None,
    bootstrap: int,
    level: float,
    tracking: str | None = None,
) -> list[Path]:
    """Draw the figures of a study, upload them, and say what was done; returns their files."""
    from study.report.figure_set import Gallery, draw
    from study.tracking.artifacts import try_to_log
    from trainables.problems import FieldError

    records = opened.records()
    if trial is not None:
        records.named(trial, "--trial")
    gallery = Gallery(opened, records, trial, bootstrap, level)
    folder = output or opened.directory / f"figures{opened.suffix}"
    written, reasons = draw(gallery, folder, suffix, only)
    if not written:
        raise FieldError("figures", "; ".join(reason.rstrip(".") for reason in reasons))
    if opened.afterwards:
        say(opened.afterwards)
    for path in written:
        say(f"wrote {path}")
    for reason in reasons:
        say(f"not drawn: {reason}")
    if opened.given is None:
        say(try_to_log(opened, written, "figures", tracking))
    return written
