"""Tables of a study, its front and an evaluation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from study.analysis.states import WORDS, Counts, done
from study.schema.matters import matters_in
from study.schema.objective import RAW, TEMPERATURE, Objective, as_served
from study.store.trials import TrialRecord
from study.terminal.layout import Table
from trainables import metrics

if TYPE_CHECKING:
    import pandas

    from study.store.study import StudyFolder
    from study.uncertainty.bootstrap import Analysis, Difference
    from study.uncertainty.intervals import Interval

ALWAYS = ("complete", "running", "to_do")
FLOOR_OF = "floor of {}"


# ---- a study -------------------------------------------------------------------------------------


def states_table(counts: dict[str, Counts], bar: int = 0) -> Table:
    """One row per method; states without a trial are left out. bar: columns of a progress bar."""
    shown = [key for key in WORDS if key in ALWAYS or any(row[key] for row in counts.values())]
    columns = ["method", ">planned", *(f">{WORDS[key]}" for key in shown)]
    made = Table(*columns, "") if bar else Table(*columns)
    for label, row in counts.items():
        cells = [Text(str(row[key])) for key in shown]
        if "failed" in shown and row["failed"]:
            cells[shown.index("failed")].style = "red"
        if bar:
            full = bar * done(row) // max(1, row["planned"])
            left = ((bar - full) * "━", "bar.back")
            cells.append(Text.assemble((full * "━", "bar.complete"), left))
        made.add_row(label, str(row["planned"]), *cells)
    return made


def failures_table(records: Iterable[TrialRecord]) -> Table | None:
    """Failed trials with their reasons; None if there are none."""
    made = Table("trial", "state", "reason")
    for record in records:
        if record.state == "failed":
            made.add_row(record.name, WORDS[record.state], record.reason or "")
    return made if len(made) else None


def front_table(
    records: list[TrialRecord],
    objectives: Sequence[Objective],
    rows: int | None = None,
    analysis: Analysis | None = None,
    equals: Mapping[str, Sequence[str]] | None = None,
    serves: str = RAW,
) -> Table:
    """The front by the first objective, best first; with `analysis`, also intervals and shares.

    equals: the trials with equal predictions, by the name of the one that stands for them. serves:
    how models are registered: where they get a temperature, the table says that its values are
    without.
    """
    shown = records[:rows]
    more = f", {len(shown)} of {len(records)}" if len(shown) < len(records) else ""
    columns: dict[str, list[str]] = {}
    for objective in objectives:
        name = objective.metric
        columns[f">{name}"] = [_value(record, name, analysis) for record in shown]
        if floors := _floors(name, shown, analysis):
            heading = f">{FLOOR_OF.format(name)}"
            columns[heading] = [floors.get(record.name, "-") for record in shown]
    if analysis is not None:
        shares = {name: f"{share:.0%}" for name, share in analysis.shares.items()}
        columns[">share"] = [shares.get(record.name, "-") for record in shown]
    without = any(as_served(one.metric, serves) != one.metric for one in objectives)
    before = ", before temperatures" if without and serves == TEMPERATURE else ""
    title = f"front (validation{before}{more})"
    made = Table("trial", *columns, ">samples seen", "values", title=title)
    for place, record in enumerate(shown):
        values = (column[place] for column in columns.values())
        samples = "" if record.samples is None else human_count(record.samples)
        name = " = ".join([record.name, *(equals or {}).get(record.name, ())])
        made.add_row(name, *values, samples, short_params(record.params))
    return made


def _value(record: TrialRecord, metric: str, analysis: Analysis | None) -> str:
    """`0.9722`, or `0.972 [0.959, 0.981]` with an interval."""
    from study.uncertainty.forms import value_text
    from study.uncertainty.intervals import Interval

    value: Interval | float = record.metrics[metric]
    if found := _interval(record, metric, analysis):
        value = Interval(record.metrics[metric], found.low, found.high)
    return value_text(value, cell=True)


def _floors(
    metric: str, records: Sequence[TrialRecord], analysis: Analysis | None
) -> dict[str, str]:
    """The floors by trial; empty if the metric has none."""
    from study.uncertainty.forms import floor_text

    intervals = {record.name: _interval(record, metric, analysis) for record in records}
    return {name: floor_text(one.floor) for name, one in intervals.items() if one and one.floor}


def _interval(record: TrialRecord, metric: str, analysis: Analysis | None) -> Interval | None:
    return None if analysis is None else analysis.intervals.get(record.name, {}).get(metric)


def human_count(count: int) -> str:
    """`950`, `23.0k`, `15.8M`."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1e6:.1f}M"


def short_params(params: Mapping[str, object]) -> str:
    """`gamma=2.1 lr=0.08`: the last word of each path, or the whole path if that is ambiguous."""
    lasts = Counter(path.rpartition(".")[2] for path in params)
    parts = []
    for path, value in params.items():
        last = path.rpartition(".")[2]
        name = path if lasts[last] > 1 else last
        parts.append(f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}")
    return " ".join(parts)


def trials_table(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], states: Mapping[str, str]
) -> Table:
    """One row a trial: state (as in a `Snapshot`), objectives on validation, hyperparameters."""
    made = Table("trial", "state", *(f">{one.metric}" for one in objectives), "values")
    for record in records:
        values = (record.metrics.get(one.metric) for one in objectives)
        shown = ["" if value is None else f"{value:.4f}" for value in values]
        made.add_row(record.name, WORDS[states[record.name]], *shown, short_params(record.params))
    return made


def epochs_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row per method and `result`, of `epochs_taken`: `0.0312 ± 0.0041`, of one seed the
    value."""
    made = Table("method", "of", "result", ">epoch", ">error", ">nll", ">ece")
    for row in rows:
        of = row["trial"] or f"{row['seeds']} seeds"
        cells = [_with_sd(row["epoch"], row["epoch_sd"], 1 if row["seeds"] > 1 else 0)]
        cells += [_with_sd(row[name], row[f"{name}_sd"], 4) for name in ("error", "nll", "ece")]
        made.add_row(row["method"], of, row["result"], *cells)
    return made


def _with_sd(value: float, sd: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" if sd is None else f"{value:.{digits}f} ± {sd:.{digits}f}"


# ---- an evaluation -------------------------------------------------------------------------------


def metrics_table(
    found: dict[str, float],
    title: str | None = None,
    intervals: dict[str, Interval] | None = None,
    level: float = 0.95,
) -> Table:
    """One row per metric, before and after temperature scaling (`ts_`); a dash if undefined.

    intervals: with their floors, where they have one.
    """
    interval = []
    if intervals is not None:
        from study.uncertainty.intervals import percent

        interval = [f">{percent(level)} interval", ">floor"]
    made = Table("metric", ">value", *interval, ">after temperature", *interval, title=title)
    for name in dict.fromkeys(name.removeprefix(metrics.AFTER_TEMPERATURE) for name in found):
        row = []
        for each in (name, metrics.AFTER_TEMPERATURE + name):
            known = None if intervals is None else intervals.get(each)
            row.append(_number(found.get(each), known))
            if intervals is not None:
                row += _ends(known)
        made.add_row(name, *row)
    return made


def _ends(found: Interval | None) -> tuple[str, str]:
    """The interval and its floor, as cells."""
    from study.uncertainty.forms import bounds, floor_text

    if found is None:
        return "-", ""
    return bounds(found), "" if found.floor is None else floor_text(found.floor)


def post_hoc_tables(rows: dict[str, dict[str, float]]) -> list[Table]:
    """One row per post-hoc calibration, and each less the temperature's; `fitted` is the
    temperature fitted on the whole file."""
    from study.uncertainty.calibrators import DECIDING, NONE, REFERENCE, less_text

    columns = [name for name in metrics.ESSENTIAL if name in rows[NONE]]
    made = Table(
        "post-hoc, cross-fitted",
        *(f">{name}" for name in (*columns, "temperature", "classes changed")),
    )
    less = Table("less the temperature's", *(f">{name}" for name in DECIDING))
    for name, row in rows.items():
        numbers = (_number(row.get(column)) for column in (*columns, "fitted"))
        made.add_row(name, *numbers, f"{row['changed']:,}")
        if name != REFERENCE:
            less.add_row(name, *(less_text(row, metric) for metric in DECIDING))
    return [made, less]


def calibrated_table(scores: Mapping[str, Mapping[str, Any]], served: str) -> Table | None:
    """One row per model and calibrator on test, less the model as `served`; None without any."""
    from study.uncertainty.calibrators import DECIDING

    heads = (f">{name}" for name in (*DECIDING, "classes changed"))
    made = Table("on test", "calibrator", *heads, title=f"less the model {served}, over seeds")
    for model, of in scores.items():
        for name, row in of.items():
            cells = []
            for metric in (*(f"{each}_less" for each in DECIDING), "changed"):
                mean, std = row[metric]["mean"], row[metric]["std"]
                form = "{:.1f}" if metric == "changed" else "{:+.4f}"
                spread = "" if std is None else f" ± {form.format(std).lstrip('+')}"
                cells.append(form.format(mean) + spread)
            made.add_row(model, name, *cells)
    return made if any(scores.values()) else None


def by_class_table(rows: pandas.DataFrame, title: str) -> Table:
    """One row a class, as `study.evaluation.by_class` has them."""
    from study.uncertainty.forms import difference_text, value_text
    from study.uncertainty.intervals import Interval

    shown = ("recall", "precision", "excess", "ece")
    heads = (">samples", ">predicted", *(f">{name}" for name in shown))
    made = Table("class", *heads, title=title)
    for row in rows.to_dict("records"):
        cells = []
        for name in shown:
            found = Interval(row[name], row[f"{name}_low"], row[f"{name}_high"])
            text = difference_text(found) if name == "excess" else value_text(found, cell=True)
            if math.isnan(found.low):
                text = "-" if math.isnan(found.estimate) else f"{found.estimate:.4f}"
            cells.append(text)
        made.add_row(row["class"], str(row["samples"]), str(row["predicted"]), *cells)
    return made


def differences_table(
    study: StudyFolder,
    found: dict[str, Difference],
    one: str,
    other: str,
    level: float,
    bare: Mapping[str, tuple[float, float]],
) -> Table:
    """One row per metric: two trials, their difference, its interval, and the first's word.

    bare: both values of metrics without intervals.
    """
    from study.uncertainty.forms import digits_for, signed_ends
    from study.uncertainty.intervals import Interval, percent
    from study.uncertainty.words import word_for

    classes = len(study.recorded.classes)
    interval = f">{percent(level)} interval"
    made = Table("metric", f">{one}", f">{other}", ">difference", interval, f"{one} is")
    for name, difference in found.items():
        first, second, *between = difference
        interval_of = Interval(*between)
        matters = matters_in(name, study.matters, classes)
        word = word_for(interval_of, name, matters)
        digits = digits_for(interval_of.low, interval_of.high)
        both = (f"{value:.{digits}f}" for value in (first, second))
        made.add_row(name, *both, *signed_ends(interval_of), word)
    for name, (first, second) in bare.items():
        values = (f"{first:.4f}", f"{second:.4f}", f"{first - second:+.4f}")
        made.add_row(name, *values, "-", "-")
    return made


def two_fronts_table(
    rows: Sequence[tuple[str, TrialRecord]],
    objectives: Sequence[Objective],
    joint: Sequence[TrialRecord],
) -> Table:
    """The fronts of two studies below each other. joint: the trials that none of either dominates,
    which are marked."""
    marked = {id(record) for record in joint}
    names = [one.metric for one in objectives]
    title = "fronts (validation)"
    made = Table(
        "study", "trial", *(f">{name}" for name in names), "of both", "values", title=title
    )
    for study, record in rows:
        values = (f"{record.metrics[name]:.4f}" for name in names)
        mark = "yes" if id(record) in marked else ""
        made.add_row(study, record.name, *values, mark, short_params(record.params))
    return made


def two_specs_table(differences: Mapping[str, tuple[str, str]], one: str, other: str) -> Table:
    """What two specs have at each key in which they differ."""
    made = Table("key", one, other, title="what differs in the specs")
    for key, (first, second) in differences.items():
        made.add_row(key, first, second)
    return made


def _number(value: float | None, known: Interval | None = None) -> str:
    """Six digits; of a value with an interval, those that it supports."""
    from study.uncertainty.forms import digits_for

    if value is None or math.isnan(value):
        return "-"
    digits = 6 if known is None else digits_for(known.low, known.high)
    return f"{value:.{digits}f}"
