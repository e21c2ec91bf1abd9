"""Pareto front, hypervolume and knee of a study: pure functions on trial records."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from study.schema.objective import Objective, costs
from study.schema.printable import csv_text
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.files.output import write_output
from trainables.plain import Value

Costs = tuple[float, ...]  # one coordinate per objective, smaller is better


def complete(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    return [record for record in records if record.state == "complete"]


def measured_in(
    records: Iterable[TrialRecord], objectives: Sequence[Objective]
) -> list[TrialRecord]:
    """The trials that have a value of every objective."""
    names = {one.metric for one in objectives}
    return [record for record in records if names <= record.metrics.keys()]


def front(records: Iterable[TrialRecord], objectives: Sequence[Objective]) -> list[TrialRecord]:
    """The complete trials that no other dominates; ties are all kept. Sorted by `rank`."""
    ordered = sorted(complete(records), key=lambda record: rank(record, objectives))
    kept: list[TrialRecord] = []
    fronted: list[Costs] = []  # without duplicates
    for record in ordered:
        point = trial_costs(record, objectives)
        # In this order only an earlier point can dominate; with two objectives only the last kept
        # one must be checked: it has the best second objective so far.
        rivals = fronted[-1:] if len(objectives) <= 2 else fronted
        if fronted and fronted[-1] == point:
            kept.append(record)
        elif not any(all(map(operator.le, rival, point)) for rival in rivals):
            kept.append(record)
            fronted.append(point)
    return kept


def rank(record: TrialRecord, objectives: Sequence[Objective]) -> tuple[Costs, str, int]:
    """Sort key of trials: the objectives in order, best first, then label and number."""
    return trial_costs(record, objectives), record.label, record.number


def trial_costs(record: TrialRecord, objectives: Sequence[Objective]) -> Costs:
    return costs([record.metrics[one.metric] for one in objectives], objectives)


def worst_point(objectives: Sequence[Objective], num_classes: int) -> Costs:
    """The worst value of each objective that a metric may have."""
    worst = [metrics.describe(one.metric).worst(num_classes) for one in objectives]
    return costs(worst, objectives)


def hypervolume(
    front: Iterable[TrialRecord], objectives: Sequence[Objective], reference: Costs
) -> float:
    """Exact volume between the front and the reference point, in the metrics' own units.

    A trial that is not better than the reference in every objective adds nothing.
    """
    points = {trial_costs(record, objectives) for record in front}
    better = [point for point in points if all(map(operator.lt, point, reference))]
    return _volume(better, reference)


def _volume(points: Sequence[Costs], reference: Costs) -> float:
    """Volume of the union of the boxes from points, all better than the reference, to it."""
    if not points:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(points)[0]
    if len(reference) == 2:
        area = 0.0
        lowest = reference[1]
        for first, second in sorted(points):
            area += (reference[0] - first) * max(lowest - second, 0.0)
            lowest = min(lowest, second)
        return area
    # Slice along the last objective: between two levels the cross-section is that of the points
    # reached so far.
    levels = sorted({point[-1] for point in points})
    return math.fsum(
        (upper - lower)
        * _volume([point[:-1] for point in points if point[-1] <= lower], reference[:-1])
        for lower, upper in zip(levels, [*levels[1:], reference[-1]], strict=True)
    )


def knee(front: Sequence[TrialRecord], objectives: Sequence[Objective]) -> TrialRecord | None:
    """The best compromise: farthest, towards the ideal, from the line through the front's extremes.

    With the objectives scaled to [0, 1] over the front, the extremes of two lie at (0, 1) and
    (1, 0), so the distance from their line grows as the sum of the coordinates falls; more
    objectives use the plane through the unit points. Ties, and fronts of two points, go to the one
    nearer to a perfect classifier (accuracy 1, all else 0, in the metrics' own units), then to the
    first. None for an empty front.
    """
    if not front:
        return None
    points = [trial_costs(record, objectives) for record in front]
    lows = [min(column) for column in zip(*points, strict=True)]
    spans = [max(column) - low for column, low in zip(zip(*points, strict=True), lows, strict=True)]
    perfect = costs([float(one.direction == "maximize") for one in objectives], objectives)
    curved = len(set(points)) > 2

    def key(index: int) -> tuple[float, float, int]:
        scaled = (
            (value - low) / span
            for value, low, span in zip(points[index], lows, spans, strict=True)
            if span > 0
        )
        # Rounded: on a straight front the last bits of a sum must not decide.
        return (round(sum(scaled), 9) if curved else 0.0, math.dist(points[index], perfect), index)

    return front[min(range(len(front)), key=key)]


def measured_names(records: Sequence[TrialRecord]) -> list[str]:
    return [name for name in metrics.names() if any(name in record.metrics for record in records)]


def row_values(records: Sequence[TrialRecord]) -> list[dict[str, Value]]:
    """Each trial's searched values and metrics, all with the same keys; None where it has none."""
    paths = sorted(set[str]().union(*(record.params for record in records)))
    measured = measured_names(records)
    return [
        {path: record.params.get(path) for path in paths}
        | {name: record.metrics.get(name) for name in measured}
        for record in records
    ]


def front_rows(records: Sequence[TrialRecord]) -> list[dict[str, Value]]:
    """Rows of a table, all with the same columns; None where a trial has no such value.

    Method, number, each searched path, each validation metric, and the training samples seen.
    """
    return [
        {"method": record.label, "number": record.number, **values, "samples": record.samples}
        for record, values in zip(records, row_values(records), strict=True)
    ]


def write_front_csv(
    records: Sequence[TrialRecord],
    path: Path,
    more: Mapping[str, Mapping[str, Value]] | None = None,
) -> None:
    """`front_rows` with a header; missing values are empty cells. more: extra columns, by trial."""
    rows = front_rows(records)
    if more:
        columns = list(dict.fromkeys(itertools.chain(*more.values())))
        for row, record in zip(rows, records, strict=True):
            row |= {column: more[record.name].get(column) for column in columns}
    write_output(path, csv_text(list(rows[0]) if rows else ["method", "number"], rows).encode())
