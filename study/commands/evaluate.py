"""Every metric of any model's predictions."""

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
@click.option("--bins", type=click.IntRange(min=1), default=15, show_default=True, help="Bins of ECE and the like.")
@click.option("--ood", type=click.Path(path_type=Path), metavar="FILE", help="Its out-of-distribution predictions.")
@json_option
def evaluate(file: Path, bins: int, ood: Path | None, as_json: bool) -> None:
    """Compute every metric of any model's predictions.

    FILE is an npz with `logits` or `probs` [N, K] and `labels` [N]. Metrics prefixed with ts_ are after temperature
    scaling, cross-fitted within the file. Undefined metrics are left out: top-5 accuracy with five classes, accuracy
    above 99% confidence when no prediction is that confident. Also shows other post-hoc calibration, cross-fitted too;
    ECE as other libraries compute it; and with --ood, how well uncertainty separates out-of-distribution samples.
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
    """{fit: its cross-fitted metrics; for a temperature, also the one fitted on the whole file}."""
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
    """AUROC and FPR95 of every score; ts_: both sets at the temperature fitted on the first."""
    from trainables.fields import FieldError
    from trainables.metrics import out_of_distribution
    from trainables.outputs.predictions import load_logits
    from trainables.post_hoc import fit_temperature

    own, other = predictions.logits, load_logits(ood)
    if own.shape[1] != other.shape[1]:
        problem = f"has {other.shape[1]} classes, {file} has {own.shape[1]}; both must come from one model."
        raise FieldError(str(ood), problem)
    return out_of_distribution.evaluate_at(own, other, fit_temperature(own, predictions.labels))
