"""Every metric of predictions from anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import click

from study.terminal import console, json_option


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--bins", type=click.IntRange(min=1), default=15, show_default=True, help="Bins of the ECE family.")
@json_option
def evaluate(file: Path, bins: int, as_json: bool) -> None:
    """Every metric of predictions from anywhere: an npz with `logits` or `probs` [N, K], and `labels` [N].

    With ts_ in front: after temperature scaling, cross-fitted inside the file.
    """
    from study.show import finite, table
    from trainables.predictions import Predictions

    predictions = Predictions.load(file)
    found = predictions.evaluate(bins)
    n, k = predictions.logits.shape
    if as_json:
        click.echo(json.dumps({"num_samples": n, "num_classes": k, "metrics": finite(found)}))
        return
    console.print(f"{file}: {n} samples, {k} classes, {bins} bins", soft_wrap=True)
    made = table("metric", ">value", ">after temperature")
    for name, value in found.items():
        if not name.startswith("ts_"):
            made.add_row(name, f"{value:.6f}", f"{found['ts_' + name]:.6f}")
    console.print(made)
