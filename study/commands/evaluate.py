"""Metrics of any model's predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
    print_json,
    removed_option,
)
from trainables import metrics
from trainables.kinds import count_of
from trainables.problems import FieldError

if TYPE_CHECKING:
    from study.uncertainty.intervals import Interval
    from trainables.outputs.predictions import Normalized, Predictions

BINS = 15
SMALL = 2**22  # logits, below which more threads of torch cost more than they save
SHOWN = 10  # rows in a sentence
INTERVALS = (
    "intervals from {} resamples of {}; those of calibration errors start at 0 unless perfect"
    " calibration is rejected at {}. {} See docs/uncertainty.md."
)
Say = Callable[[str], object]  # shows what is computed now


@dataclass(frozen=True)
class Request:
    """What the words ask for."""

    file: Path
    names: list[str]  # metrics, without `ts_`
    bins: int
    level: float | None  # of the intervals; None: there are none
    post_hoc: bool
    ood: Path | None
    normalize: bool  # divide probabilities by their sum


@dataclass(frozen=True)
class Evaluation:
    """What was asked for, each empty or None where it was not."""

    samples: int
    classes: int
    groups: int | None  # that the samples belong to, if the file says so
    metrics: dict[str, float]  # before and, with the prefix `ts_`, after temperature scaling
    intervals: dict[str, Interval] | None
    post_hoc: dict[str, dict[str, float]]
    apart: dict[str, float]  # how well uncertainty separates the samples of `ood`
    impossible: list[int]  # the rows whose label has probability 0


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--metrics", "named", metavar="NAMES", help="These metrics instead, such as ece,skce."
)
@click.option("--all", "every", is_flag=True, help="Every metric, and --post-hoc.")
@removed_option(
    "--conventions", "The bins of `ece` are (lo, hi]; `make compare` in a checkout has others' too."
)
@click.option(
    "--post-hoc", "post_hoc", is_flag=True, help="Also other post-hoc calibration, cross-fitted."
)
@click.option(
    "--intervals", is_flag=True, help="Also bootstrap intervals, of the metrics that have one."
)
@interval_option
@click.option(
    "--normalize", is_flag=True, help="Divide each row of rounded probabilities by its sum."
)
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
    post_hoc: bool,
    intervals: bool,
    level: float,
    normalize: bool,
    bins: int,
    ood: Path | None,
    as_json: bool,
) -> None:
    """Compute the metrics of any model's predictions.

    FILE is an npz with `logits` or `probs` [N, K] and `labels` [N], or a csv or parquet file with
    columns label, and logit_0, logit_1, ... or prob_0, prob_1, ...; `groups` [N] (a column group),
    numbers or text, says which samples belong together. Shows accuracy, NLL, Brier score and ECE,
    before and after temperature scaling, cross-fitted within the file; --metrics and --all show
    others. JSON gives the values after it the prefix ts_ and leaves out undefined ones.
    """
    _check(named, every, intervals, level, bins)
    asked = Request(
        file,
        _names(named, every),
        bins,
        level if intervals else None,
        post_hoc or every,
        ood,
        normalize,
    )
    if every or named or post_hoc or intervals:
        with errors.status("") as status:
            found = _evaluated(asked, status.update)
    else:
        found = _evaluated(asked, lambda doing: None)
    if as_json:
        print_json(_plain(asked, found))
    else:
        _print(asked, found)


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
    if named is None:
        return list(metrics.described() if every else metrics.ESSENTIAL)
    names = [name.strip() for name in named.split(",")]
    try:
        for name in names:
            metrics.check(name)
    except FieldError as error:
        raise error.under("--metrics") from None
    return list(dict.fromkeys(name.removeprefix(metrics.AFTER_TEMPERATURE) for name in names))


def _evaluated(asked: Request, say: Say) -> Evaluation:
    """Read the file and compute what is asked for."""
    from trainables.machine import one_torch_thread
    from trainables.outputs.predictions import Predictions

    predictions = Predictions.load(asked.file, _normalized(asked, asked.file))
    apart = {} if asked.ood is None else _apart(predictions, asked, asked.ood)
    samples, classes = predictions.logits.shape
    is_small = predictions.logits.numel() < SMALL
    with one_torch_thread() if is_small else nullcontext():
        return Evaluation(
            samples,
            classes,
            None if predictions.groups is None else int(predictions.groups.max()) + 1,
            _measured(predictions, asked, say),
            _intervals(predictions, asked, say),
            _post_hoc(predictions, asked, say),
            apart,
            predictions.impossible().tolist(),
        )


def _normalized(asked: Request, file: Path) -> Normalized | None:
    """Says by how much the sums of the file were off, if it is asked to divide by them."""
    if not asked.normalize:
        return None
    return lambda most: errors.say(
        f"{file}: each row divided by its sum, off by at most {most:.3g}."
    )


def _measured(predictions: Predictions, asked: Request, say: Say) -> dict[str, float]:
    """The defined metrics before and, with the prefix `ts_`, after temperature scaling."""
    say("temperature scaling")
    after = predictions.cross_fitted()
    found: dict[str, float] = {}
    scores = {
        "": (predictions.logits, predictions.probs),
        metrics.AFTER_TEMPERATURE: (after, predictions.probs_after(after)),
    }
    for prefix, (logits, probs) in scores.items():
        for number, name in enumerate(asked.names, start=1):
            if prefix and metrics.describe(name).removed_of:
                continue
            say(f"{prefix}{name} ({number} of {len(asked.names)})")
            values = metrics.measure(
                logits, predictions.labels, [name], asked.bins, after, probs=probs
            )
            found |= {prefix + name: value for name, value in values.items()}
    return found


def _intervals(predictions: Predictions, asked: Request, say: Say) -> dict[str, Interval] | None:
    """Intervals by metric, `ts_` included, of those that are resampled and have a finite one."""
    if asked.level is None:
        return None
    import numpy as np

    from study.uncertainty.bootstrap import intervals_of, measured
    from study.uncertainty.resampling import draws_for, too_few

    resamples = _resamples(asked.level)
    if reason := too_few(predictions):
        raise FieldError(str(asked.file), f"its {reason}", "Leave out --intervals.")
    say(f"intervals, from {resamples:,} resamples")
    wanted = [*asked.names, *(metrics.AFTER_TEMPERATURE + name for name in asked.names)]
    with np.errstate(invalid="ignore"):  # an infinite NLL has no interval
        parts = measured(predictions, draws_for(predictions, resamples), wanted)
        found = intervals_of(parts, wanted, asked.level)
    return {
        name: one
        for name, one in found.items()
        if math.isfinite(one.low) and math.isfinite(one.high)
    }


def _post_hoc(predictions: Predictions, asked: Request, say: Say) -> dict[str, dict[str, float]]:
    """{fit: its cross-fitted metrics; for a temperature, also the one fitted on the whole file}."""
    if not asked.post_hoc:
        return {}
    from trainables.metrics.shared import post_hoc
    from trainables.metrics.shared.temperature_of_ece import fit_temperature_by_ece

    logits = predictions.logits
    labels = predictions.labels
    probs = predictions.probs
    rows = {"none": metrics.measure(logits, labels, metrics.ESSENTIAL, asked.bins, probs=probs)}
    for name, fit in post_hoc.FITS.items():
        say(f"post-hoc calibration: {name}")
        calibrated = post_hoc.cross_fitted(logits, labels, fit=fit, groups=predictions.groups)
        rows[name] = metrics.measure(calibrated, labels, metrics.ESSENTIAL, asked.bins)
    for name, scaling in post_hoc.TEMPERATURES.items():
        rows[name]["fitted"] = scaling(logits, labels).temperature
    rows["temperature_of_ece"]["fitted"] = fit_temperature_by_ece(logits, labels)
    return rows


def _apart(predictions: Predictions, asked: Request, ood: Path) -> dict[str, float]:
    """AUROC and FPR95 of every score; ts_: both sets at the temperature fitted on the first."""
    from trainables.metrics import out_of_distribution
    from trainables.outputs.predictions import has_groups, load_scores

    own = predictions.logits
    other = load_scores(ood, _normalized(asked, ood))
    if has_groups(ood):
        errors.say(f"{ood}: its groups are not used; each sample counts by itself.")
    if own.shape[1] != other.logits.shape[1]:
        raise FieldError(
            str(ood),
            f"has {other.logits.shape[1]} classes, {asked.file} has {own.shape[1]}",
            "Both must come from one model.",
        )
    return out_of_distribution.separation_at(
        own, other.logits, predictions.temperature(), predictions.probs, other.probs
    )


def _plain(asked: Request, found: Evaluation) -> dict[str, object]:
    """The evaluation for JSON; what was not asked for is absent."""
    from study.terminal.tables import finite

    plain: dict[str, object] = {
        "num_samples": found.samples,
        "num_classes": found.classes,
        **({} if found.groups is None else {"num_groups": found.groups}),
        "metrics": finite(found.metrics),
    }
    if found.impossible:
        first = found.impossible[:SHOWN]
        plain["infinite_nll"] = {"rows": len(found.impossible), "first": first}
    if asked.level is not None and found.intervals is not None:
        plain["intervals"] = {name: one.ends() for name, one in found.intervals.items()}
        plain |= {"resamples": _resamples(asked.level), "level": asked.level}
    parts = {
        "post_hoc": {name: finite(row) for name, row in found.post_hoc.items()},
        "out_of_distribution": found.apart,
    }
    return plain | {name: part for name, part in parts.items() if part}


def _print(asked: Request, found: Evaluation) -> None:
    from study.terminal.tables import metrics_table, post_hoc_table

    groups = "" if found.groups is None else f" in {found.groups:,} groups"
    console.say(
        f"{asked.file}: {found.samples} samples{groups}, {found.classes} classes, {asked.bins} bins"
    )
    values = {**dict.fromkeys(asked.names, math.nan), **found.metrics}
    if asked.level is None:
        console.print(metrics_table(values))
    else:
        from study.uncertainty.intervals import floor_note, percent, significance

        console.print(metrics_table(values, intervals=found.intervals, level=asked.level))
        rejected = percent(significance(asked.level))
        resamples = f"{_resamples(asked.level):,}"
        units = f"{found.samples:,} samples" if found.groups is None else f"{found.groups:,} groups"
        console.say(INTERVALS.format(resamples, units, rejected, floor_note(asked.level)))
    if any(map(math.isinf, found.metrics.values())) and found.impossible:
        console.say(_infinite(found.impossible))
    if found.post_hoc:
        console.print(post_hoc_table(found.post_hoc))
    if found.apart:
        console.print(metrics_table(found.apart, title=f"out of distribution: {asked.ood}"))


def _infinite(rows: list[int]) -> str:
    """The sentence about rows whose label has probability 0."""
    first = ", ".join(map(str, rows[:SHOWN]))
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return (
        f"NLL is infinite: the label's class has probability 0 in {count_of(len(rows), 'rows')},"
        f" counted from 0: {first}{more}."
    )
