"""Metrics of any model's predictions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from study.terminal.console import (
    MOST_RESAMPLES,
    check_resamples,
    console,
    errors,
    fewest_resamples,
    interval_is_given,
    interval_option,
    json_option,
)

if TYPE_CHECKING:
    from study.uncertainty.intervals import Interval
    from trainables.outputs.predictions import Predictions

BINS = 15
SMALL = 2**22  # logits, below which more threads of torch cost more than they save
INTERVALS = (
    "intervals from {} resamples; those of calibration errors start at 0 unless perfect calibration"
    " is rejected at {}. {} See docs/uncertainty.md."
)
Say = Callable[[str], Any]  # shows what is computed now


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--metrics", "named", metavar="NAMES", help="These metrics instead, such as ece,skce."
)
@click.option("--all", "every", is_flag=True, help="Every metric, --conventions and --post-hoc.")
@click.option("--conventions", is_flag=True, help="Also ECE as other libraries compute it.")
@click.option(
    "--post-hoc", "post_hoc", is_flag=True, help="Also other post-hoc calibration, cross-fitted."
)
@click.option(
    "--intervals", is_flag=True, help="Also bootstrap intervals, of the metrics that have one."
)
@interval_option
@click.option(
    "--bins",
    type=click.IntRange(min=1),
    default=BINS,
    show_default=True,
    help="Bins of ECE and the like.",
)
@click.option(
    "--ood",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also how well uncertainty separates its samples.",
)
@json_option
def evaluate(
    file: Path,
    named: str | None,
    every: bool,
    conventions: bool,
    post_hoc: bool,
    intervals: bool,
    level: float,
    bins: int,
    ood: Path | None,
    as_json: bool,
) -> None:
    """Compute the metrics of any model's predictions.

    FILE is an npz with `logits` or `probs` [N, K] and `labels` [N]. Shows accuracy, NLL, Brier
    score, ECE, MCE, adaptive ECE, classwise ECE and debiased L2 error, before and after temperature
    scaling, cross-fitted within the file. JSON gives the latter the prefix ts_ and leaves out
    undefined values.
    """
    from study.terminal.tables import conventions_table, finite, metrics_table, post_hoc_table
    from trainables.machine import one_torch_thread
    from trainables.outputs.predictions import Predictions

    _check(named, every, intervals, level, bins)
    names = _names(named, every)
    predictions = Predictions.load(file)
    apart = {} if ood is None else _ood(predictions, file, ood)
    with ExitStack() as stack:
        if predictions.logits.numel() < SMALL:
            stack.enter_context(one_torch_thread())
        more = every or named or conventions or post_hoc or intervals
        say: Say = stack.enter_context(errors.status("")).update if more else lambda doing: None
        found = _measured(predictions, names, bins, say)
        sure = _intervals(predictions, file, names, level, say) if intervals else None
        fits = _post_hoc(predictions, bins, say) if post_hoc or every else {}
        others = _conventions(predictions, bins, say) if conventions or every else {}
    n, k = predictions.logits.shape
    if as_json:
        whole: dict[str, Any] = {"num_samples": n, "num_classes": k, "metrics": finite(found)}
        if sure is not None:
            ends = {name: one.ends() for name, one in sure.items()}
            whole |= {"intervals": ends, "resamples": _resamples(level), "level": level}
        if fits:
            whole["post_hoc"] = {name: finite(row) for name, row in fits.items()}
        if others:
            whole["conventions"] = _conventions_plain(others)
        if apart:
            whole["out_of_distribution"] = apart
        click.echo(json.dumps(whole))
        return
    console.say(f"{file}: {n} samples, {k} classes, {bins} bins")
    console.print(
        metrics_table({**dict.fromkeys(names, math.nan), **found}, intervals=sure, level=level)
    )
    if sure is not None:
        from study.uncertainty.intervals import floor_note, percent, significance

        rejected = percent(significance(level))
        how = INTERVALS.format(f"{_resamples(level):,}", rejected, floor_note(level))
        console.say(how)
    if fits:
        console.print(post_hoc_table(fits))
    if others:
        console.print(conventions_table(others))
    if apart:
        console.print(metrics_table(apart, title=f"out of distribution: {ood}"))


def _check(named: str | None, every: bool, intervals: bool, level: float, bins: int) -> None:
    """Raises UsageError for options that exclude each other."""
    if named is not None and every:
        raise click.UsageError("--all shows every metric. Leave out --metrics, or --all.")
    if interval_is_given() and not intervals:
        raise click.UsageError("--interval is for --intervals. Add it.")
    if intervals and bins != BINS:
        raise click.UsageError(f"--intervals are of {BINS} bins. Leave out --bins.")
    if intervals:
        check_resamples(_resamples(level), level)


def _resamples(level: float) -> int:
    return min(max(1000, fewest_resamples(level)), MOST_RESAMPLES)


def _names(named: str | None, every: bool) -> list[str]:
    """The metrics to show, without `ts_`. Raises FieldError."""
    from trainables import metrics
    from trainables.problems import FieldError

    if named is None:
        return list(metrics.described() if every else metrics.MAIN)
    names = [name.strip() for name in named.split(",")]
    try:
        for name in names:
            metrics.check(name)
    except FieldError as error:
        raise error.under("--metrics") from None
    return list(dict.fromkeys(name.removeprefix(metrics.AFTER_TEMPERATURE) for name in names))


def _measured(
    predictions: Predictions, names: Sequence[str], bins: int, say: Say
) -> dict[str, float]:
    """The defined metrics before and, with the prefix `ts_`, after temperature scaling."""
    from trainables import metrics

    say("temperature scaling")
    after = predictions.cross_fitted()
    found: dict[str, float] = {}
    for prefix, logits in (("", predictions.logits), (metrics.AFTER_TEMPERATURE, after)):
        for number, name in enumerate(names, start=1):
            if prefix and metrics.describe(name).removed_of:
                continue
            say(f"{prefix}{name} ({number} of {len(names)})")
            values = metrics.measure(logits, predictions.labels, [name], bins, after)
            found |= {prefix + name: value for name, value in values.items()}
    return found


def _intervals(
    predictions: Predictions, file: Path, names: Sequence[str], level: float, say: Say
) -> dict[str, Interval]:
    """Intervals by metric, `ts_` included, of those that are resampled and have a finite one."""
    import numpy as np

    from study.uncertainty.bootstrap import FEWEST_SAMPLES, intervals_of, measured
    from study.uncertainty.resampling import Draws
    from trainables.metrics import AFTER_TEMPERATURE
    from trainables.problems import FieldError

    samples = len(predictions.labels)
    resamples = _resamples(level)
    if samples < FEWEST_SAMPLES:
        raise FieldError(
            str(file), f"its {samples} samples are too few to resample", "Leave out --intervals."
        )
    say(f"intervals, from {resamples:,} resamples")
    wanted = [*names, *(AFTER_TEMPERATURE + name for name in names)]
    with np.errstate(invalid="ignore"):  # an infinite NLL has no interval
        parts = measured(predictions, Draws.of(samples, resamples, 0), wanted)
        found = intervals_of(parts, wanted, level)
    return {
        name: one
        for name, one in found.items()
        if math.isfinite(one.low) and math.isfinite(one.high)
    }


def _conventions(predictions: Predictions, bins: int, say: Say) -> dict[str, float]:
    from trainables.metrics import conventions

    say("ECE in other libraries")
    return conventions.by_convention(predictions.logits, predictions.labels, bins)


def _conventions_plain(found: dict[str, float]) -> dict[str, object]:
    from study.terminal.tables import finite
    from trainables.metrics.conventions import CONVENTIONS

    values = finite(found)
    return {name: CONVENTIONS[name]._asdict() | {"value": values[name]} for name in found}


def _post_hoc(predictions: Predictions, bins: int, say: Say) -> dict[str, dict[str, float]]:
    """{fit: its cross-fitted metrics; for a temperature, also the one fitted on the whole file}."""
    from trainables import metrics
    from trainables.metrics.shared import post_hoc

    logits = predictions.logits
    labels = predictions.labels
    rows = {"none": metrics.measure(logits, labels, metrics.ESSENTIAL, bins)}
    for name, fit in post_hoc.FITS.items():
        say(f"post-hoc calibration: {name}")
        calibrated = post_hoc.cross_fitted(logits, labels, fit=fit)
        rows[name] = metrics.measure(calibrated, labels, metrics.ESSENTIAL, bins)
    for name, scaling in post_hoc.TEMPERATURES.items():
        rows[name]["fitted"] = scaling(logits, labels).temperature
    rows["temperature_of_ece"]["fitted"] = post_hoc.fit_temperature_by_ece(logits, labels)
    return rows


def _ood(predictions: Predictions, file: Path, ood: Path) -> dict[str, float]:
    """AUROC and FPR95 of every score; ts_: both sets at the temperature fitted on the first."""
    from trainables.metrics import out_of_distribution
    from trainables.outputs.predictions import load_logits
    from trainables.problems import FieldError

    own = predictions.logits
    other = load_logits(ood)
    if own.shape[1] != other.shape[1]:
        raise FieldError(
            str(ood),
            f"has {other.shape[1]} classes, {file} has {own.shape[1]}",
            "Both must come from one model.",
        )
    return out_of_distribution.separation_at(own, other, predictions.temperature())
