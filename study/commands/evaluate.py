"""Every metric of predictions from anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from study.terminal.console import console, json_option

if TYPE_CHECKING:
    from trainables.outputs.predictions import Predictions


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--bins", type=click.IntRange(min=1), default=15, show_default=True, help="Bins of the ECE family.")
@click.option("--ood", type=click.Path(path_type=Path), metavar="FILE", help="The model's answers to strange samples.")
@json_option
def evaluate(file: Path, bins: int, ood: Path | None, as_json: bool) -> None:
    """Every metric of predictions from anywhere: an npz with `logits` or `probs` [N, K], and `labels` [N].

    With ts_ in front: after temperature scaling, cross-fitted inside the file. What says nothing here is left out:
    top-5 of five classes, accuracy above 99% where nothing is that sure. Then other calibration after training,
    cross-fitted too; ECE as others compute it; and with --ood, how well doubt tells those samples from these.
    """
    from study.terminal.tables import conventions_table, finite, metrics_table, post_hoc_table
    from trainables import metrics
    from trainables.metrics import conventions
    from trainables.outputs.predictions import Predictions

    predictions = Predictions.load(file)
    apart = {} if ood is None else _ood(predictions, file, ood)
    found = predictions.evaluate(bins, also=metrics.names())
    fits = _post_hoc(predictions, bins)
    others = conventions.evaluate(predictions.logits, predictions.labels, bins)
    n, k = predictions.logits.shape
    if as_json:
        values = {"metrics": finite(found), "post_hoc": {name: finite(row) for name, row in fits.items()}}
        values["conventions"] = {
            name: conventions.CONVENTIONS[name]._asdict() | {"value": value} for name, value in finite(others).items()
        }
        values |= {"out_of_distribution": apart} if apart else {}
        click.echo(json.dumps({"num_samples": n, "num_classes": k, **values}))
        return
    console.print(f"{file}: {n} samples, {k} classes, {bins} bins", soft_wrap=True)
    console.print(metrics_table(found))
    console.print(post_hoc_table(fits))
    console.print(conventions_table(others))
    if apart:
        console.print(metrics_table(apart, title=f"out of distribution: {ood}"))


def _post_hoc(predictions: Predictions, bins: int) -> dict[str, dict[str, float]]:
    """{fit: its metrics, cross-fitted; of a temperature, also that of the whole file}."""
    from trainables import metrics, post_hoc

    logits, labels = predictions.logits, predictions.labels
    calibrated = {name: post_hoc.cross_fitted(logits, labels, fit=fit) for name, fit in post_hoc.FITS.items()}
    rows = {}
    for name, scaled in {"none": logits, **calibrated}.items():
        values = metrics.evaluate(scaled, labels, bins)
        rows[name] = {metric: values[metric] for metric in metrics.ESSENTIAL}
    rows["temperature"]["fitted"] = post_hoc.fit_temperature(logits, labels)
    rows["temperature_of_ece"]["fitted"] = post_hoc.fit_temperature_by_ece(logits, labels)
    return rows


def _ood(predictions: Predictions, file: Path, ood: Path) -> dict[str, float]:
    """AUROC and FPR95 of every score; with ts_ in front, both sets at the temperature of the first."""
    from trainables.fields import FieldError
    from trainables.metrics import out_of_distribution
    from trainables.outputs.predictions import load_logits
    from trainables.post_hoc import fit_temperature

    own, strange = predictions.logits, load_logits(ood)
    if own.shape[1] != strange.shape[1]:
        problem = f"has {strange.shape[1]} classes, {file} has {own.shape[1]}; both must be of one model."
        raise FieldError(str(ood), problem)
    return out_of_distribution.evaluate_at(own, strange, fit_temperature(own, predictions.labels))
