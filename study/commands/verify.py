"""Check a registered model."""

from __future__ import annotations

import json

import click

from study.terminal.console import FAILED, console, errors, json_option, storage_option, tracking_option


@click.command()
@click.argument("model_uri")
@click.option("--details", is_flag=True, help="Show every comparison, also if all agree.")
@storage_option
@tracking_option
@json_option
def verify(model_uri: str, details: bool, storage: str | None, tracking: str | None, as_json: bool) -> None:
    """Check that a registered model is the one measured.

    Loads models:/NAME/VERSION (or models:/NAME@ALIAS) in a fresh process that refuses pickle, predicts the validation
    split again, and compares probabilities (tolerance 1e-5) and metrics (1e-6). Prints one line if all agree. Exits
    with code 1 if they differ.
    """
    from study.registry.verify import verify as verify_model
    from study.schema.uris import resolve_uri
    from study.store.study import storage_root
    from study.terminal.layout import Table

    report = verify_model(model_uri, resolve_uri(tracking, None, storage_root(storage)))
    if as_json:
        click.echo(json.dumps(report.to_json()))
    elif report.problem is not None:
        errors.print(f"{model_uri}: NOT verified: {report.problem}")
    else:
        if details or not report.ok:
            made = Table("check", ">difference", ">limit", "")
            for check in report.checks:
                made.add_row(check.name, f"{check.found:g}", f"{check.limit:g}", "ok" if check.ok else "DIFFERS")
            console.print(made)
        verdict = "verified" if report.ok else "NOT verified"
        ties = f"; {report.flipped} of them on a tie" if report.flipped else ""
        size = f"{report.num_samples} validation samples, {len(report.checks)} checks"
        console.print(f"{report.model}: {verdict} on {size}{ties}", soft_wrap=True)
    if not report.ok:
        raise SystemExit(FAILED)
