"""Check a registered model."""

from __future__ import annotations

import os
from pathlib import Path

import click

from study.terminal.console import (
    FAILED,
    console,
    errors,
    json_option,
    print_json,
    storage_option,
    tracking_option,
)
from study.terminal.steps import Steps
from trainables.kinds import count_of


@click.command()
@click.argument("model_uri")
@click.option("--details", is_flag=True, help="Show every comparison, also if all agree.")
@click.option(
    "--extensions",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    metavar="DIR",
    help=(
        "Folder with the code of the model's data set, if that is your own; default: the study's,"
        " in the storage."
    ),
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, resolve_path=True),
    metavar="DIR",
    help="New folder for the files that were verified, to serve those.",
)
@storage_option
@tracking_option
@json_option
def verify(
    model_uri: str,
    details: bool,
    extensions: Path | None,
    keep: Path | None,
    storage: str | None,
    tracking: str | None,
    as_json: bool,
) -> None:
    """Check that a registered model is the one measured.

    Compares the files of models:/NAME/VERSION (or models:/NAME@ALIAS) with the digests in the
    registry before it opens any of them. Then loads the model in a fresh process that refuses
    pickle, predicts the validation split again, and compares probabilities (tolerance 1e-5) and
    metrics (1e-6). Prints one line if all agree. Exits with code 1 if they differ,
    and with 2 if there is no such model.
    """
    if keep is not None and os.path.lexists(keep):
        raise click.UsageError(f"--keep: {keep} exists. Name a folder that does not.")
    from study.registry.verification import look_up
    from study.registry.verification import verify as verify_model
    from study.schema.uris import resolve_uri
    from study.store.study import storage_root
    from study.terminal.layout import Table

    root = storage_root(storage)
    uri = resolve_uri(tracking, None, root)
    look_up(model_uri, uri)
    with Steps(errors) as steps:
        steps("measuring the registered model")
        report = verify_model(model_uri, uri, root, extensions, keep)
    if as_json:
        print_json(report.to_json())
    elif report.problem is not None:
        errors.print(f"{model_uri}: NOT verified: {report.problem}")
    else:
        if details or not report.ok:
            made = Table("check", ">difference", ">limit", "")
            for check in report.checks:
                made.add_row(
                    check.name,
                    f"{check.found:g}",
                    f"{check.limit:g}",
                    "ok" if check.ok else "DIFFERS",
                )
            console.print(made)
        verdict = "verified" if report.ok else "NOT verified"
        ties = f"; {report.flipped} of them on a tie" if report.flipped else ""
        size = f"{report.num_samples} validation samples"
        if report.num_images:
            images = count_of(report.num_images, "validation images")
            size = f"{count_of(report.num_samples, 'pixels')} of {images}"
        console.say(f"{report.model}: {verdict} on {size}, {len(report.checks)} checks{ties}")
    if not report.ok:
        raise SystemExit(FAILED)
