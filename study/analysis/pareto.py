"""Pareto front, hypervolume and knee of a study: pure functions on trial records."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from study.schema.objective import Objective, costs
from study.schema.printable import csv_text
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.files.output import write_output

Costs = tuple[float, ...]  # one coordinate per objective, smaller is better


def complete(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    return [record for record in records if record.state == "complete"]


def front(records: Iterable[TrialRecord], objectives: Sequence[Objective]) -> list[TrialRecord]:
    """The complete trials that no other dominates; ties are all kept. Sorted by `rank`."""
    ordered = sorted(complete(records), key=lambda record: rank(record, objectives))
    kept: list[TrialRecord] = []
    fronted: list[Costs] = []  # without duplicates
    for record in ordered:
        point = trial_costs(record, objectives)
        # In this order only an earlier point can dominate; with two objectives only the last kept one must be checked:
        # it has the best second objective so far.
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
    return costs([record.metrics[objective.metric] for objective in objectives], objectives)


def worst_point(objectives: Sequence[Objective], num_classes: int) -> Costs:
    """The worst value of each objective that a metric may have."""
    return costs(
        [metrics.describe(objective.metric).worst(num_classes) for objective in objectives],
        objectives,
    )


def hypervolume(
    front: Iterable[TrialRecord], objectives: Sequence[Objective], reference: Costs
) -> float:
    """Exact volume of the objective space between the front and the reference point, in the metrics' own units.

    A trial that is not better than the reference in every objective adds nothing.
    """
    points = {trial_costs(record, objectives) for record in front}
    return _volume(
        [point for point in points if all(map(operator.lt, point, reference))], reference
    )


def _volume(points: Sequence[Costs], reference: Costs) -> float:
    """Volume of the union of the boxes between each point and the reference; all points are better than it."""
    if not points:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(points)[0]
    if len(reference) == 2:
        area, lowest = 0.0, reference[1]
        for first, second in sorted(points):
            area += (reference[0] - first) * max(lowest - second, 0.0)
            lowest = min(lowest, second)
        return area
    # Slice along the last objective: between two levels the cross-section is that of the points reached so far.
    levels = sorted({point[-1] for point in points})
    return math.fsum(
        (upper - lower)
        * _volume([point[:-1] for point in points if point[-1] <= lower], reference[:-1])
        for lower, upper in zip(levels, [*levels[1:], reference[-1]], strict=True)
    )


def knee(front: Sequence[TrialRecord], objectives: Sequence[Objective]) -> TrialRecord | None:
    """The best compromise on a front: farthest, towards the ideal, from the line through its normalised extremes.

    With the objectives scaled to [0, 1] over the front, the extremes of two lie at (0, 1) and (1, 0), so the distance
    from their line grows as the sum of the coordinates falls; more objectives use the plane through the unit points.
    Ties, and fronts of two points, go to the one nearer to a perfect classifier (accuracy 1, all else 0, in the
    metrics' own units), then to the first. None for an empty front.
    """
    if not front:
        return None
    points = [trial_costs(record, objectives) for record in front]
    lows = [min(column) for column in zip(*points, strict=True)]
    spans = [max(column) - low for column, low in zip(zip(*points, strict=True), lows, strict=True)]
    perfect = costs(
        [1.0 if objective.direction == "maximize" else 0.0 for objective in objectives], objectives
    )
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


def front_rows(records: Sequence[TrialRecord]) -> list[dict[str, object]]:
    """Rows of a table, all with the same columns: method, number, each searched path, each validation metric, and the
    training samples seen. None if a trial has no such value.
    """
    paths = sorted({path for record in records for path in record.params})
    measured = measured_names(records)
    return [
        {"method": record.label, "number": record.number}
        | {path: record.params.get(path) for path in paths}
        | {name: record.metrics.get(name) for name in measured}
        | {"samples": record.samples}
        for record in records
    ]


def write_front_csv(
    records: Sequence[TrialRecord],
    path: Path,
    more: Mapping[str, Mapping[str, object]] | None = None,
) -> None:
    """`front_rows` with a header; missing values are empty cells. more: extra columns, by trial."""
    rows = front_rows(records)
    if more:
        columns = list(dict.fromkeys(column for values in more.values() for column in values))
        added = (
            {column: more[record.name].get(column) for column in columns} for record in records
        )
        rows = [row | extra for row, extra in zip(rows, added, strict=True)]
    write_output(path, csv_text(list(rows[0]) if rows else ["method", "number"], rows).encode())
