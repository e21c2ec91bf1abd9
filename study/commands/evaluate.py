"""Metrics of any model's predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from study.terminal.console import (
    BEYOND_LIMIT,
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
    from study.evaluation.alerts import Alert
    from study.evaluation.comparison import Comparison
    from study.evaluation.evaluation import Evaluation
    from study.evaluation.files import Columns
    from study.evaluation.measure import Say
    from study.evaluation.user_predictions import UserPredictions
    from study.uncertainty.calibrators import Rows
    from trainables.outputs.predictions import Normalized, Predictions

BINS = 15
SHOWN = 10  # rows in a sentence
INTERVALS = (
    "intervals from {} resamples of {}; those of calibration errors start at 0 where the model may"
    " be perfectly calibrated. {} See docs/why/how-certain.md."
)


@dataclass(frozen=True)
class Request:
    """What the words ask for."""

    file: Path
    other: Path | None
    columns: Columns
    ignore: str | None
    names: list[str]  # metrics, without `ts_`
    alerts: list[Alert]
    is_named: bool  # whether metrics were asked for
    bins: int
    level: float | None  # of the intervals; None: there are none
    post_hoc: bool
    by_class: bool
    ood: Path | None
    normalize: bool  # divide probabilities by their sum

    @property
    def measured(self) -> list[str]:
        """The metrics to compute: also those that a condition names."""
        return list(dict.fromkeys([*self.names, *(alert.metric for alert in self.alerts)]))


@dataclass(frozen=True)
class Found:
    """What was asked for, each empty or None where it was not."""

    own: Evaluation
    other: Evaluation | None
    between: Comparison | None
    post_hoc: Rows
    apart: dict[str, float]  # how well uncertainty separates the samples of `ood`


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path), required=False)
@click.option("--label", metavar="NAME", help="Column of the labels; default: label.")
@click.option("--probs", metavar="PATTERN", help="Columns of probabilities: 'p_*', or p_a,p_b.")
@click.option("--logits", metavar="PATTERN", help="Columns of logits, as --probs names them.")
@click.option("--score", metavar="NAME", help="Column of the probability of one of two classes.")
@click.option("--positive", metavar="CLASS", help="The class that --score is of; default: 1.")
@click.option("--id", "id_", metavar="NAME", help="Column that pairs the rows of two files.")
@click.option("--group", metavar="NAME", help="Column that says which rows belong together.")
@click.option(
    "--ignore",
    metavar="LABEL",
    help="Leave out the samples with this label: -1; '' those without one.",
)
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
    "--intervals/--no-intervals",
    default=None,
    help="Bootstrap intervals, of the metrics that have one; default: yes.",
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
@click.option("--by-class", is_flag=True, help="Also a row for each class.")
@click.option(
    "--figure", type=click.Path(path_type=Path), help="Draw a reliability diagram: png, pdf, svg."
)
@click.option(
    "--fail-if",
    "limits",
    multiple=True,
    metavar="CONDITION",
    help='End with exit code 3 if it holds: "ece>0.05", "ece.low>0.05". Repeatable.',
)
@json_option
def evaluate(
    file: Path,
    other: Path | None,
    label: str | None,
    probs: str | None,
    logits: str | None,
    score: str | None,
    positive: str | None,
    id_: str | None,
    group: str | None,
    ignore: str | None,
    named: str | None,
    every: bool,
    post_hoc: bool,
    intervals: bool | None,
    level: float,
    normalize: bool,
    bins: int,
    ood: Path | None,
    by_class: bool,
    figure: Path | None,
    limits: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure any model's predictions, or compare those of two models.

    FILE is a csv or parquet file, or an npz. Its columns are label, and logit_0, logit_1, ... or
    prob_0, prob_1, ...; --label, --probs, --logits and --score name others. An npz has the arrays
    labels [N], and logits or probs [N, K]; of maps [N, H, W], and [N, K, H, W].
    If labels are words, * in the pattern matches the class. If they are numbers, classes count from
    0, in the order of the columns' numbers. `group` (npz: groups), or the column of --group, says
    which samples belong together.

    Shows accuracy, NLL, Brier score and ECE with 95% intervals, and whether to use a temperature,
    cross-fitted within the file. --metrics and --all show other metrics, before and after the
    temperature. JSON calls those after it ts_NAME, and leaves out undefined ones. --fail-if is for
    a monitor: what is not defined alerts too.
    """
    from study.evaluation.alerts import read_alerts
    from study.evaluation.files import Columns

    shown = bins == BINS if intervals is None else intervals
    _check(named, every, intervals, shown, level, bins)
    _check_figure(figure, by_class, bins)
    asked = Request(
        file,
        other,
        Columns(label, probs, logits, score, positive, id_, group),
        ignore,
        _names(named, every),
        read_alerts(limits),
        named is not None or every,
        bins,
        level if shown else None,
        post_hoc or every,
        by_class,
        ood,
        normalize,
    )
    with errors.status("") if every or named or post_hoc else nullcontext() as status:
        found = _found(asked, (lambda doing: None) if status is None else status.update)
    failed = [said for alert in asked.alerts if (said := alert.failed(found.own)) is not None]
    if figure is not None:
        _draw(found.own, figure)
    if as_json:
        print_json(_plain(asked, found, failed))
    else:
        _print(asked, found)
    for line in failed:
        errors.say(line)
    if failed:
        raise SystemExit(BEYOND_LIMIT)


def _check(
    named: str | None, every: bool, asked: bool | None, shown: bool, level: float, bins: int
) -> None:
    """Raises UsageError for options that exclude each other."""
    if named is not None and every:
        raise click.UsageError("--all shows every metric. Leave out --metrics, or --all.")
    if interval_is_given() and not shown:
        raise click.UsageError("--interval is for --intervals. Add it.")
    if asked and bins != BINS:
        raise click.UsageError(f"--intervals are of {BINS} bins. Leave out --bins.")
    if shown:
        check_resamples(min(max(1000, fewest_resamples(level)), MOST_RESAMPLES), level)


def _check_figure(figure: Path | None, by_class: bool, bins: int) -> None:
    from study.report.style import check_suffix

    if bins != BINS and (by_class or figure is not None):
        option = "--by-class" if by_class else "--figure"
        raise click.UsageError(f"{option} has {BINS} bins. Leave out --bins.")
    if figure is not None:
        check_suffix(figure)


def _draw(found: Evaluation, figure: Path) -> None:
    from study.report.style import save
    from trainables.files.output import write_output

    save(found.reliability(), figure, write_output)


def _names(named: str | None, every: bool) -> list[str]:
    """The metrics to show, without `ts_`. Raises FieldError."""
    from study.evaluation.evaluation import checked_names

    if every:
        return list(metrics.described())
    try:
        return checked_names(named)
    except FieldError as error:
        raise error.at("--metrics") from None


def _found(asked: Request, say: Say) -> Found:
    """Read the files and compute what is asked for."""
    from study.evaluation.evaluation import evaluated
    from trainables.machine import one_torch_thread

    if asked.columns.id is not None and asked.other is None:
        raise click.UsageError("--id pairs the rows of two files. Name the other file.")
    given = _read(asked, asked.file)
    beside = None if asked.other is None else _read_other(asked, asked.other, given)
    own = evaluated(given, asked.measured, asked.level, asked.bins, say)
    other = between = None
    if beside is not None:
        other = evaluated(beside, asked.measured, asked.level, asked.bins, say)
        between = own.difference(other)
    predictions = given.predictions
    with one_torch_thread():
        post_hoc = _post_hoc(own, asked, say)
        apart = {} if asked.ood is None else _apart(predictions, asked, asked.ood)
    return Found(own, other, between, post_hoc, apart)


def _read(asked: Request, file: Path) -> UserPredictions:
    from study.evaluation.files import read

    return read(file, asked.columns, asked.ignore, _normalized(asked, file))


def _read_other(asked: Request, file: Path, own: UserPredictions) -> UserPredictions:
    """The other file, its classes and its rows in the order of our own."""
    from study.evaluation.comparison import paired

    try:
        return paired(own, _read(asked, file))
    except FieldError as error:
        raise error if error.path == str(file) else error.at(f"{file}: {error.path}") from None


def _normalized(asked: Request, file: Path) -> Normalized | None:
    """Says by how much the sums of the file were off, if it is asked to divide by them."""
    if not asked.normalize:
        return None
    return lambda most: errors.say(
        f"{file}: each row divided by its sum, off by at most {most:.3g}."
    )


def _post_hoc(own: Evaluation, asked: Request, say: Say) -> Rows:
    """The calibrators' numbers, if asked for."""
    if not asked.post_hoc:
        return {}
    return own.calibrators(asked.bins, say)


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


def _plain(asked: Request, found: Found, failed: Sequence[str]) -> dict[str, object]:
    """The evaluation for JSON; what was not asked for is absent."""
    from study.uncertainty.forms import finite

    plain = {"file": str(asked.file), **_plain_of(asked, found.own)}
    if found.other is not None and found.between is not None:
        plain["other"] = _plain_of(asked, found.other)
        plain["differences"] = found.between.to_dict()["differences"]
    if asked.alerts:
        plain["failed"] = list(failed)
    parts = {
        "post_hoc": {name: finite(row) for name, row in found.post_hoc.items()},
        "out_of_distribution": found.apart,
    }
    return plain | {name: part for name, part in parts.items() if part}


def _plain_of(asked: Request, found: Evaluation) -> dict[str, object]:
    plain = found.to_dict()
    impossible = found.given.predictions.impossible().tolist()
    if impossible:
        plain["infinite_nll"] = {"rows": len(impossible), "first": impossible[:SHOWN]}
    if asked.by_class:
        rows = found.by_class().to_dict("records")
        plain["by_class"] = [
            {key: None if value != value else value for key, value in row.items()} for row in rows
        ]
    return plain


def _print(asked: Request, found: Found) -> None:
    from study.terminal.tables import by_class_table, metrics_table, post_hoc_tables
    from trainables.metrics.shared.structured import MATRIX, MOST_CLASSES

    for file, each in ((asked.file, found.own), (asked.other, found.other)):
        if each is not None:
            _print_one(asked, each, str(file))
            if asked.by_class:
                console.print(by_class_table(each.by_class(), f"by class: {file}"))
    if found.between is not None:
        for line in found.between.lines:
            console.say(line)
    if found.post_hoc:
        for table in post_hoc_tables(found.post_hoc):
            console.print(table)
        if MATRIX not in found.post_hoc:
            console.say(f"{MATRIX} is for at most {MOST_CLASSES} classes.")
    if found.apart:
        console.print(metrics_table(found.apart, title=f"out of distribution: {asked.ood}"))


def _print_one(asked: Request, found: Evaluation, file: str) -> None:
    first, *rest = found.lines
    bins = "" if asked.bins == BINS else f", {asked.bins} bins"
    console.say(f"{file}: {first}{bins}")
    if asked.is_named:
        _print_table(asked, found)
        rest = rest[len(found.names) :]
    for line in rest:
        console.say(line)
    impossible = found.given.predictions.impossible().tolist()
    if impossible and any(map(math.isinf, found.numbers.values.values())):
        console.say(_infinite(impossible))


def _print_table(asked: Request, found: Evaluation) -> None:
    """All metrics asked for, before and after a temperature."""
    from study.terminal.tables import metrics_table

    values = {**dict.fromkeys(asked.measured, math.nan), **found.numbers.values}
    if not found.numbers.resamples or asked.level is None:
        console.print(metrics_table(values))
        return
    from study.uncertainty.intervals import floor_note

    console.print(metrics_table(values, intervals=found.numbers.intervals, level=asked.level))
    resamples = f"{found.numbers.resamples:,}"
    console.say(INTERVALS.format(resamples, found.counted, floor_note(asked.level)))


def _infinite(rows: list[int]) -> str:
    """The sentence about rows whose label has probability 0."""
    first = ", ".join(map(str, rows[:SHOWN]))
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return (
        f"NLL is infinite: the label's class has probability 0 in {count_of(len(rows), 'rows')},"
        f" counted from 0: {first}{more}."
    )
