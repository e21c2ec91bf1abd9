"""Tables of a study, its front and an evaluation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from study.analysis.states import WORDS, Counts, done
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from study.terminal.layout import Table
from trainables import metrics

if TYPE_CHECKING:
    from study.uncertainty.bootstrap import Analysis, Difference
    from study.uncertainty.intervals import Interval

ALWAYS = ("complete", "running", "to_do")


# ---- a study -------------------------------------------------------------------------------------------------------


def states_table(counts: dict[str, Counts], bar: int = 0) -> Table:
    """One row per method; states no trial is in are left out. bar: columns of a bar of what is done."""
    shown = [key for key in WORDS if key in ALWAYS or any(row[key] for row in counts.values())]
    made = Table("method", ">planned", *(f">{WORDS[key]}" for key in shown), *([""] if bar else []))
    for label, row in counts.items():
        cells = [
            Text(str(row[key]), style="red" if key == "failed" and row[key] else "")
            for key in shown
        ]
        full = bar * done(row) // max(1, row["planned"])
        bars = (
            [Text.assemble((full * "━", "bar.complete"), ((bar - full) * "━", "bar.back"))]
            if bar
            else []
        )
        made.add_row(label, str(row["planned"]), *cells, *bars)
    return made


def failures_table(records: Mapping[str, Sequence[TrialRecord]]) -> Table | None:
    """Failed trials with their reasons; None if there are none."""
    made = Table("trial", "state", "reason")
    for record in (
        record for found in records.values() for record in found if record.state == "failed"
    ):
        made.add_row(record.name, WORDS[record.state], record.reason or "")
    return made if len(made) else None


def front_table(
    records: list[TrialRecord],
    objectives: Sequence[Objective],
    rows: int | None = None,
    analysis: Analysis | None = None,
) -> Table:
    """The front by the first objective, best first; with `analysis`, also intervals and shares."""
    more = "" if rows is None or len(records) <= rows else f", {rows} of {len(records)}"
    columns = [f">{objective.metric}" for objective in objectives] + (
        [] if analysis is None else [">share"]
    )
    made = Table("trial", *columns, ">samples seen", "values", title=f"front (validation{more})")
    for record in records[:rows]:
        values = [_value(record, objective.metric, analysis) for objective in objectives]
        if analysis is not None:
            share = analysis.shares.get(record.name)
            values.append("-" if share is None else f"{share:.0%}")
        samples = "" if record.samples is None else human_count(record.samples)
        made.add_row(record.name, *values, samples, short_params(record.params))
    return made


def _value(record: TrialRecord, metric: str, analysis: Analysis | None) -> str:
    """`0.9722`, or `0.9722 [0.9590, 0.9812]` with an interval."""
    value = f"{record.metrics[metric]:.4f}"
    found = None if analysis is None else analysis.intervals[record.name].get(metric)
    return value if found is None else f"{value} [{found.low:.4f}, {found.high:.4f}]"


def human_count(count: int) -> str:
    """`950`, `23.0k`, `15.8M`."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1e6:.1f}M"


def short_params(params: dict[str, Any]) -> str:
    """`gamma=2.1 lr=0.08`: the last word of each path, or the whole path if that is ambiguous."""
    lasts = Counter(path.rpartition(".")[2] for path in params)
    shown = {
        path: path if lasts[path.rpartition(".")[2]] > 1 else path.rpartition(".")[2]
        for path in params
    }
    return " ".join(
        f"{shown[path]}={value:.3g}" if isinstance(value, float) else f"{shown[path]}={value}"
        for path, value in params.items()
    )


def trials_table(
    records: Sequence[TrialRecord], objectives: Sequence[Objective], states: Mapping[str, str]
) -> Table:
    """One row a trial: state (as in a `Snapshot`), objectives on validation, hyperparameters."""
    made = Table("trial", "state", *(f">{objective.metric}" for objective in objectives), "values")
    for record in records:
        values = (record.metrics.get(objective.metric) for objective in objectives)
        shown = ["" if value is None else f"{value:.4f}" for value in values]
        made.add_row(record.name, WORDS[states[record.name]], *shown, short_params(record.params))
    return made


# ---- an evaluation -------------------------------------------------------------------------------------------------


def metrics_table(
    found: dict[str, float],
    title: str | None = None,
    intervals: dict[str, Interval] | None = None,
    level: float = 0.95,
) -> Table:
    """One row per metric, before and after temperature scaling (`ts_`); a dash if undefined."""
    interval = []
    if intervals is not None:
        from study.uncertainty.intervals import percent

        interval = [f">{percent(level)} interval"]
    made = Table("metric", ">value", *interval, ">after temperature", *interval, title=title)
    for name in dict.fromkeys(name.removeprefix(metrics.AFTER_TEMPERATURE) for name in found):
        row = []
        for each in (name, metrics.AFTER_TEMPERATURE + name):
            row.append(_number(found.get(each)))
            if intervals is not None:
                sure = intervals.get(each)
                row.append("-" if sure is None else f"[{sure.low:.4f}, {sure.high:.4f}]")
        made.add_row(name, *row)
    return made


def post_hoc_table(rows: dict[str, dict[str, float]]) -> Table:
    """One row per post-hoc calibration; `fitted` is the temperature fitted on the whole file."""
    columns = [name for name in rows["none"] if name != "fitted"]
    made = Table("post-hoc, cross-fitted", *(f">{name}" for name in columns), ">temperature")
    for name, row in rows.items():
        made.add_row(
            name, *(_number(row[column]) for column in columns), _number(row.get("fitted"))
        )
    return made


def differences_table(found: dict[str, Difference], one: str, other: str, level: float) -> Table:
    """One row per metric: two trials, their difference, its interval, and the better one if that excludes 0."""
    from study.uncertainty.intervals import percent

    made = Table(
        "metric", f">{one}", f">{other}", ">difference", f">{percent(level)} interval", "better"
    )
    for name, difference in found.items():
        first, second, estimate, low, high = difference
        larger = metrics.describe(name).better == "higher"
        better = "" if low <= 0 <= high else one if (low > 0) == larger else other
        made.add_row(
            name,
            f"{first:.4f}",
            f"{second:.4f}",
            f"{estimate:+.4f}",
            f"[{low:+.4f}, {high:+.4f}]",
            better,
        )
    return made


def conventions_table(values: dict[str, float]) -> Table:
    """One row per public implementation of ECE; lossy ones say what they lose."""
    from trainables.metrics import conventions

    made = Table("ECE in other libraries", ">value", "bins", "loses")
    for name, value in values.items():
        convention = conventions.CONVENTIONS[name]
        loses = f"LOSSY: {convention.loses}" if convention.loses else ""
        made.add_row(name, _number(value), convention.rule, loses)
    return made


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.6f}"


def finite(values: dict[str, float]) -> dict[str, float | None]:
    """Values for JSON: null if not finite."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
