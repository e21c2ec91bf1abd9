"""Tables of a study, its front and an evaluation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from study.schema.objective import Objective
from study.store.study import Study
from study.store.trials import TrialRecord
from study.terminal.layout import Table
from trainables import metrics

if TYPE_CHECKING:
    from study.uncertainty.bootstrap import Analysis, Difference
    from study.uncertainty.intervals import Interval


# ---- a study -------------------------------------------------------------------------------------------------------


def status_counts(study: Study, records: dict[str, list[TrialRecord]], alive: bool) -> dict[str, dict[str, int]]:
    """{label: {planned, complete, pruned, failed, running, to_do}}; planned is the sum of the others.

    alive: whether a driver is at work; without one nothing runs.
    """
    counts = {}
    for label, found in records.items():
        states = {state: sum(record.state == state for record in found) for state in ("complete", "pruned", "failed")}
        states["running"] = sum(alive and study.trains(record) for record in found)
        planned = max(study.planned, len(found))
        counts[label] = {"planned": planned, **states, "to_do": planned - sum(states.values())}
    return counts


def status_table(counts: dict[str, dict[str, int]]) -> Table:
    """One row per method."""
    made = Table("method", ">planned", ">complete", ">pruned", ">failed", ">running", ">to do")
    for label, row in counts.items():
        made.add_row(label, *(str(value) for value in row.values()))
    return made


def failures_table(records: dict[str, list[TrialRecord]]) -> Table | None:
    """Trials that did not complete, with their reasons; None if there are none."""
    made = Table("trial", "state", "reason")
    for record in (record for found in records.values() for record in found if record.reason):
        made.add_row(record.name, record.state, record.reason or "")
    return made if len(made) else None


def front_table(
    records: list[TrialRecord],
    objectives: Sequence[Objective],
    rows: int | None = None,
    analysis: Analysis | None = None,
) -> Table:
    """The front by the first objective, best first; with `analysis`, also intervals and shares."""
    more = "" if rows is None or len(records) <= rows else f", {rows} of {len(records)}"
    columns = [f">{objective.metric}" for objective in objectives] + ([] if analysis is None else [">share"])
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
    shown = {path: path if lasts[path.rpartition(".")[2]] > 1 else path.rpartition(".")[2] for path in params}
    return " ".join(
        f"{shown[path]}={value:.3g}" if isinstance(value, float) else f"{shown[path]}={value}"
        for path, value in params.items()
    )


def trials_table(records: Sequence[TrialRecord], objectives: Sequence[Objective], aside: Collection[str] = ()) -> Table:
    """One row a trial: state, objectives on validation, hyperparameters. aside: trials that are set aside."""
    made = Table("trial", "state", *(f">{objective.metric}" for objective in objectives), "values")
    for record in records:
        values = (record.metrics.get(objective.metric) for objective in objectives)
        shown = ["" if value is None else f"{value:.4f}" for value in values]
        state = "set aside" if record.name in aside else record.state
        made.add_row(record.name, state, *shown, short_params(record.params))
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
        made.add_row(name, *(_number(row[column]) for column in columns), _number(row.get("fitted")))
    return made


def differences_table(found: dict[str, Difference], one: str, other: str, level: float) -> Table:
    """One row per metric: two trials, their difference, its interval, and the better one if that excludes 0."""
    from study.uncertainty.intervals import percent

    made = Table("metric", f">{one}", f">{other}", ">difference", f">{percent(level)} interval", "better")
    for name, difference in found.items():
        first, second, estimate, low, high = difference
        larger = metrics.describe(name).better == "higher"
        better = "" if low <= 0 <= high else one if (low > 0) == larger else other
        made.add_row(name, f"{first:.4f}", f"{second:.4f}", f"{estimate:+.4f}", f"[{low:+.4f}, {high:+.4f}]", better)
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
