"""Front, hypervolume and knee of a study, and the choice of one trial: pure functions on trial records."""

from __future__ import annotations

import csv
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from study.objective import LARGER_IS_BETTER, Objective, costs, plain_name, worst
from study.records import TrialRecord
from trainables import metrics
from trainables.fields import FieldError

Costs = tuple[float, ...]  # one coordinate for each objective, smaller is better

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"(\w+)\s*(>=|<=|>|<)\s*([^\s<>=]+)")
_PICK = re.compile(r"(min|max)\s+(\w+)(?:\s+where\s+(.+))?")
_LARGEST = {"nll": math.inf, "brier": 2.0}  # of the other metrics 1: they are fractions


def complete(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Those that were trained to the end."""
    return [record for record in records if record.state == "complete"]


def front(records: Iterable[TrialRecord], objectives: Sequence[Objective]) -> list[TrialRecord]:
    """The complete trials that no other dominates; equals are all kept.

    Best first by the first objective, then by the next ones, the label and the number.
    """
    ordered = sorted(complete(records), key=lambda record: _rank(record, objectives))
    kept: list[TrialRecord] = []
    fronted: list[Costs] = []  # without equals
    for record in ordered:
        point = _costs(record, objectives)
        # In this order only an earlier point can dominate, and of two objectives only the last one kept need be asked:
        # it has the best second objective so far.
        rivals = fronted[-1:] if len(objectives) <= 2 else fronted
        if fronted and fronted[-1] == point:
            kept.append(record)
        elif not any(all(map(operator.le, rival, point)) for rival in rivals):
            kept.append(record)
            fronted.append(point)
    return kept


def _rank(record: TrialRecord, objectives: Sequence[Objective]) -> tuple[Costs, str, int]:
    return _costs(record, objectives), record.label, record.number


def _costs(record: TrialRecord, objectives: Sequence[Objective]) -> Costs:
    return costs([record.metrics[objective.metric] for objective in objectives], objectives)


def hypervolume(front: Iterable[TrialRecord], objectives: Sequence[Objective], num_classes: int) -> float:
    """What the front dominates of the space before the reference point, exactly; in the metrics' own units.

    The reference is `worst` of each metric. A trial that is not better than it in every objective adds nothing.
    """
    reference = costs([worst(objective.metric, num_classes) for objective in objectives], objectives)
    points = {_costs(record, objectives) for record in front}
    return _volume([point for point in points if all(map(operator.lt, point, reference))], reference)


def _volume(points: Sequence[Costs], reference: Costs) -> float:
    """Volume of the union of the boxes between each point and the reference; every point is better than it."""
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
    # Slices along the last objective: between two levels the cross-section is that of the points reached so far.
    levels = sorted({point[-1] for point in points})
    return math.fsum(
        (upper - lower) * _volume([point[:-1] for point in points if point[-1] <= lower], reference[:-1])
        for lower, upper in zip(levels, [*levels[1:], reference[-1]], strict=True)
    )


def knee(front: Sequence[TrialRecord], objectives: Sequence[Objective]) -> TrialRecord | None:
    """The compromise of a front: farthest, towards the ideal, from the line through its normalised extremes.

    With the objectives scaled to [0, 1] over the front the extremes of two lie at (0, 1) and (1, 0), so the distance
    from their line grows as the sum of the coordinates falls; more objectives take the plane through the unit points.
    Of equals, and of two points, the one nearer to a perfect classifier (accuracy 1, all else 0, in the metrics' own
    units), then the first. None of an empty front.
    """
    if not front:
        return None
    points = [_costs(record, objectives) for record in front]
    lows = [min(column) for column in zip(*points, strict=True)]
    spans = [max(column) - low for column, low in zip(zip(*points, strict=True), lows, strict=True)]
    perfect = costs([1.0 if objective.direction == "maximize" else 0.0 for objective in objectives], objectives)
    curved = len(set(points)) > 2

    def key(index: int) -> tuple[float, float, int]:
        scaled = ((value - low) / span for value, low, span in zip(points[index], lows, spans, strict=True) if span > 0)
        # Rounded: on a straight front the last bits of a sum must not choose.
        return (round(sum(scaled), 9) if curved else 0.0, math.dist(points[index], perfect), index)

    return front[min(range(len(front)), key=key)]


@dataclass(frozen=True)
class Condition:
    """A bound on a metric of the validation split."""

    metric: str
    comparison: str  # >= <= > <
    bound: float

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.bound:g}"


def parse_where(text: str) -> list[Condition]:
    """`accuracy>=0.95 and ece<0.02`; a comma says `and` too. Raises FieldError at `where`."""
    if not text.strip():
        raise FieldError("where", "is empty; write a condition as accuracy>=0.95.")
    return [_condition(part.strip()) for part in re.split(r"\s+and\s+|,", text, flags=re.IGNORECASE)]


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        problem = f"cannot read '{text}'; write a metric, one of {' '.join(_COMPARISONS)}, a number: accuracy>=0.95."
        raise FieldError("where", problem)
    metric, comparison, number = found.groups()
    _check_metric("where", metric)
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise FieldError("where", f"'{number}' in '{text}' is no number; write one as in accuracy>=0.95.")
    largest = _LARGEST.get(plain_name(metric), 1.0)
    if not 0 <= bound <= largest:
        percent = f" Did you mean {bound / 100:g}?" if largest == 1 and 1 < bound <= 100 else ""
        within = "is never negative" if largest == math.inf else f"lies in [0, {largest:g}]"
        raise FieldError("where", f"{metric} {within}, got {bound:g}.{percent}")
    return Condition(metric, comparison, bound)


def _check_metric(where: str, metric: str) -> None:
    try:
        metrics.check(metric)
    except FieldError as error:
        raise FieldError(where, error.problem) from None


def satisfies(record: TrialRecord, conditions: Iterable[Condition]) -> bool:
    """Whether a trial is complete and meets every condition. A metric that was not measured meets none."""
    return record.state == "complete" and all(
        condition.metric in record.metrics
        and _COMPARISONS[condition.comparison](record.metrics[condition.metric], condition.bound)
        for condition in conditions
    )


def pick(records: Iterable[TrialRecord], objectives: Sequence[Objective], text: str) -> TrialRecord:
    """The trial that `knee` (of the front) or `min ece where accuracy>=0.95` names; equals by the objectives.

    Raises FieldError at `pick`.
    """
    finished = complete(records)
    words = text.strip()
    found = _PICK.fullmatch(words)
    if found is None and words != "knee":
        raise FieldError("pick", f"cannot read '{text}'; write knee, or: min ece where accuracy>=0.95.")
    if not finished:
        raise FieldError("pick", "no trial is complete yet; let `calstudy run` finish some first.")
    if found is None:
        chosen = knee(front(finished, objectives), objectives)
        assert chosen is not None
        return chosen
    goal, metric, where = found.groups()
    better = "max" if plain_name(metric) in LARGER_IS_BETTER else "min"
    _check_metric("pick", metric)
    if goal != better:
        raise FieldError("pick", f"{metric} is better the other way; write {better} {metric}.")
    try:
        conditions = parse_where(where) if where is not None else []
    except FieldError as error:
        raise FieldError("pick", error.problem) from None
    measured = _measured(finished)
    for name in (metric, *(condition.metric for condition in conditions)):
        if name not in measured:
            raise FieldError("pick", f"{name} was not measured; there is {', '.join(measured)}.")
    allowed = [record for record in finished if metric in record.metrics and satisfies(record, conditions)]
    if not allowed:
        raise FieldError("pick", _nothing_satisfies(finished, conditions))
    sign = -1.0 if goal == "max" else 1.0
    return min(allowed, key=lambda record: (sign * record.metrics[metric], *_rank(record, objectives)))


def _nothing_satisfies(finished: Sequence[TrialRecord], conditions: Sequence[Condition]) -> str:
    asked = " and ".join(str(condition) for condition in conditions)
    bests = "; ".join(_best(finished, condition) for condition in conditions)
    together = ", each by itself" if len(conditions) > 1 else ""
    return f"no complete trial has {asked}. The best there is{together}: {bests}. Relax the condition."


def _best(finished: Sequence[TrialRecord], condition: Condition) -> str:
    """The value that comes nearest to the condition or meets it best, and whose it is."""
    sign = -1.0 if condition.comparison.startswith(">") else 1.0
    measured = (record for record in finished if condition.metric in record.metrics)
    best = min(measured, key=lambda record: (sign * record.metrics[condition.metric], record.label, record.number))
    return f"{condition.metric} {best.metrics[condition.metric]:.6g} ({best.name})"


def _measured(records: Sequence[TrialRecord]) -> list[str]:
    return [name for name in metrics.names() if any(name in record.metrics for record in records)]


def front_rows(records: Sequence[TrialRecord]) -> list[dict[str, object]]:
    """Rows of a table, all with the same columns: method, number, each searched path, each validation metric,
    and the samples it was trained on.

    None where a trial has no such value.
    """
    paths = sorted({path for record in records for path in record.params})
    measured = _measured(records)
    return [
        {"method": record.label, "number": record.number}
        | {path: record.params.get(path) for path in paths}
        | {name: record.metrics.get(name) for name in measured}
        | {"samples": record.samples}
        for record in records
    ]


def write_front_csv(
    records: Sequence[TrialRecord], path: Path, more: Mapping[str, Mapping[str, object]] | None = None
) -> None:
    """`front_rows` with a header; a value that a trial lacks is an empty cell. more: columns after them, by trial."""
    rows = front_rows(records)
    if more:
        columns = list(dict.fromkeys(column for values in more.values() for column in values))
        added = ({column: more[record.name].get(column) for column in columns} for record in records)
        rows = [row | extra for row, extra in zip(rows, added, strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["method", "number"])
        writer.writeheader()
        writer.writerows(rows)
