"""Rules that select one trial, and conditions on trials: pure functions of validation values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from study.analysis.pareto import complete, front, knee, measured_names, rank
from study.schema.condition import Condition, check_metric, read_condition
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from trainables import metrics
from trainables.fields import FieldError

# From a metric to the names of the trials not significantly worse in it than the best
NotWorse = Callable[[str], Collection[str]]

RULES = "knee, or: min ece where accuracy>=0.95, or: min ece where accuracy~best, or: weighted error=1 ece=2"

_PICK = re.compile(r"(?:(min|max)\s+(\w+)|weighted\s+(\S.*?))(?:\s+where\s+(.+))?")
_AS_GOOD = re.compile(r"(\w+)\s*~\s*best")


def parse_where(text: str) -> list[Condition]:
    """`accuracy>=0.95 and ece<0.02`; a comma means `and`. Raises FieldError at `where`."""
    if not text.strip():
        raise FieldError("where", "is empty; write a condition such as accuracy>=0.95.")
    return [
        _condition(part.strip()) for part in re.split(r"\s+and\s+|,", text, flags=re.IGNORECASE)
    ]


def _condition(text: str) -> Condition:
    if _AS_GOOD.fullmatch(text):
        raise FieldError(
            "where",
            f"'{text}' works only in `export --pick`; write a bound such as accuracy>=0.95.",
        )
    return read_condition("where", text)


def satisfies(record: TrialRecord, conditions: Iterable[Condition]) -> bool:
    """Whether a trial is complete and meets every condition. A metric that was not measured fails its condition."""
    return record.state == "complete" and all(
        condition.holds(record.metrics) for condition in conditions
    )


@dataclass(frozen=True)
class Rule:
    """The smallest weighted sum among the trials that meet all conditions; weights are negative if larger is better."""

    weights: dict[str, float]
    conditions: tuple[Condition, ...]
    as_good: tuple[
        str, ...
    ]  # metrics in which the trial must not be significantly worse than the best

    @property
    def metrics(self) -> list[str]:
        return [*self.weights, *(condition.metric for condition in self.conditions), *self.as_good]


def parse_rule(text: str) -> Rule | None:
    """`min ece where accuracy~best`; None for `knee`. Raises FieldError at `pick`."""
    words = text.strip()
    if words == "knee":
        return None
    found = _PICK.fullmatch(words)
    if found is None:
        raise FieldError("pick", f"cannot parse '{text}'; write {RULES}.")
    goal, metric, weighted, where = found.groups()
    weights = _weights(weighted) if weighted else {metric: _goal_weight(goal, metric)}
    parts = (
        [part.strip() for part in re.split(r"\s+and\s+|,", where, flags=re.IGNORECASE)]
        if where
        else []
    )
    as_good = [part[1] for part in map(_AS_GOOD.fullmatch, parts) if part]
    for name in as_good:
        check_metric("pick", name)
    try:
        bounds = [_condition(part) for part in parts if not _AS_GOOD.fullmatch(part)]
    except FieldError as error:
        hint = " Or write accuracy~best." if where and "~" in where else ""
        raise FieldError("pick", f"{error.problem}{hint}") from None
    return Rule(weights, tuple(bounds), tuple(as_good))


def _goal_weight(goal: str, metric: str) -> float:
    check_metric("pick", metric)
    better = "max" if metrics.describe(metric).better == "higher" else "min"
    if goal != better:
        raise FieldError("pick", f"{metric} must be {better}imized; write {better} {metric}.")
    return metrics.describe(metric).sign


def _weights(text: str) -> dict[str, float]:
    """`error=1 ece=2`: the weight of each metric, in the metric's own units."""
    weights: dict[str, float] = {}
    for part in re.split(r"[\s,]+", text):
        metric, _, number = part.partition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not (math.isfinite(weight) and weight > 0):
            raise FieldError(
                "pick",
                f"cannot parse '{part}'; write metrics with weights above 0: weighted error=1 ece=2.",
            )
        check_metric("pick", metric)
        if metric in weights:
            raise FieldError("pick", f"{metric} is weighted twice; remove one.")
        weights[metric] = weight * metrics.describe(metric).sign
    return weights


def pick(
    records: Iterable[TrialRecord],
    served: Sequence[Objective],
    text: str,
    not_worse: NotWorse | None = None,
) -> TrialRecord:
    """The trial that the rule selects; the objectives, as served, break ties. Raises FieldError at `pick`.

    records: those that count. not_worse: called if the rule contains `~best`.
    """
    finished, rule, objectives = complete(records), parse_rule(text), served
    if not finished:
        raise FieldError(
            "pick", "no trial is complete yet; run the study with `calstudy run` first."
        )
    if rule is None:
        chosen = knee(front(finished, objectives), objectives)
        assert chosen is not None
        return chosen
    measured = measured_names(finished)
    for name in rule.metrics:
        if name not in measured:
            raise FieldError(
                "pick", f"{name} was not measured. Measured metrics: {', '.join(measured)}."
            )
    allowed = [
        record
        for record in finished
        if satisfies(record, rule.conditions)
        and all(name in record.metrics for name in rule.weights)
    ]
    for name in rule.as_good:
        if not_worse is None:
            raise FieldError("pick", f"{name}~best needs a study's stored predictions.")
        as_good = not_worse(name)
        allowed = [record for record in allowed if record.name in as_good]
    if not allowed:
        raise FieldError("pick", _nothing_satisfies(finished, rule))

    def total(record: TrialRecord) -> float:
        return math.fsum(weight * record.metrics[name] for name, weight in rule.weights.items())

    return min(allowed, key=lambda record: (total(record), *rank(record, objectives)))


def _nothing_satisfies(finished: Sequence[TrialRecord], rule: Rule) -> str:
    asked = " and ".join([*map(str, rule.conditions), *(f"{name}~best" for name in rule.as_good)])
    bests = "; ".join(_best(finished, condition) for condition in rule.conditions)
    each = ", one condition at a time" if len(rule.conditions) > 1 else ""
    closest = f" Best value{each}: {bests}." if bests else ""
    return f"no complete trial satisfies {asked}.{closest} Relax the condition."


def _best(finished: Sequence[TrialRecord], condition: Condition) -> str:
    """The best value for the condition, and its trial."""
    sign = -1.0 if condition.comparison.startswith(">") else 1.0
    measured = (record for record in finished if condition.metric in record.metrics)
    best = min(
        measured,
        key=lambda record: (sign * record.metrics[condition.metric], record.label, record.number),
    )
    return f"{condition.metric} {best.metrics[condition.metric]:.6g} ({best.name})"
