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
from trainables.problems import FieldError

# From a metric to the names of the trials not significantly worse in it than the best
NotWorse = Callable[[str], Collection[str]]

RULES = (
    "knee, or: min ece where accuracy>=0.95, or: min ece where accuracy~best, or: weighted error=1"
    " ece=2"
)

_PICK = re.compile(r"(?:(min|max)\s+(\w+)|weighted\s+(\S.*?))(?:\s+where\s+(.+))?")
_AS_GOOD = re.compile(r"(\w+)\s*~\s*best")


def parse_where(text: str) -> list[Condition]:
    """`accuracy>=0.95 and ece<0.02`; a comma means `and`. Raises FieldError at `where`."""
    if not text.strip():
        raise FieldError("where", "is empty", "Write a condition such as accuracy>=0.95.")
    return [_condition(part) for part in _parts(text)]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\s+and\s+|,", text, flags=re.IGNORECASE)]


def _condition(text: str) -> Condition:
    if _AS_GOOD.fullmatch(text):
        raise FieldError(
            "where",
            f"'{text}' works only in `export --pick`",
            "Write a bound such as accuracy>=0.95.",
        )
    return read_condition("where", text)


def satisfies(record: TrialRecord, conditions: Iterable[Condition]) -> bool:
    """Whether a trial is complete and meets every condition; an unmeasured metric fails its own."""
    holds = (condition.holds(record.metrics) for condition in conditions)
    return record.state == "complete" and all(holds)


@dataclass(frozen=True)
class Rule:
    """The smallest weighted sum where all conditions hold; weights < 0 where larger is better."""

    weights: dict[str, float]
    conditions: tuple[Condition, ...]
    # Metrics in which the trial must not be significantly worse than the best.
    as_good: tuple[str, ...]

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
        raise FieldError("pick", f"cannot parse '{text}'", f"Write {RULES}.")
    goal, metric, weighted, where = found.groups()
    weights = _weights(weighted) if weighted else {metric: _goal_weight(goal, metric)}
    parts = _parts(where) if where else []
    as_good = [part[1] for part in map(_AS_GOOD.fullmatch, parts) if part]
    for name in as_good:
        check_metric("pick", name)
    try:
        bounds = [_condition(part) for part in parts if not _AS_GOOD.fullmatch(part)]
    except FieldError as error:
        hint = "Or write accuracy~best." if where and "~" in where else ""
        raise FieldError("pick", error.found, f"{error.mend} {hint}".strip()) from None
    return Rule(weights, tuple(bounds), tuple(as_good))


def _goal_weight(goal: str, metric: str) -> float:
    check_metric("pick", metric)
    better = "max" if metrics.describe(metric).better == "higher" else "min"
    if goal != better:
        raise FieldError("pick", f"{metric} must be {better}imized", f"Write {better} {metric}.")
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
            mend = "Write metrics with weights above 0: weighted error=1 ece=2."
            raise FieldError("pick", f"cannot parse '{part}'", mend)
        check_metric("pick", metric)
        if metric in weights:
            raise FieldError("pick", f"{metric} is weighted twice", "Remove one.")
        weights[metric] = weight * metrics.describe(metric).sign
    return weights


def pick(
    records: Iterable[TrialRecord],
    served: Sequence[Objective],
    text: str,
    not_worse: NotWorse | None = None,
) -> TrialRecord:
    """The trial that the rule selects; the objectives, as deployed, break ties.

    records: those that count. not_worse: called if the rule contains `~best`. Raises FieldError at
    `pick`.
    """
    finished = complete(records)
    rule = parse_rule(text)
    if not finished:
        raise FieldError("pick", "no trial is complete yet", "Run the study until one is.")
    if rule is None:
        chosen = knee(front(finished, served), served)
        assert chosen is not None
        return chosen
    measured = measured_names(finished)
    for name in rule.metrics:
        if name not in measured:
            raise FieldError(
                "pick", f"{name} was not measured", f"Measured metrics: {', '.join(measured)}."
            )
    allowed = [record for record in finished if rule.weights.keys() <= record.metrics.keys()]
    allowed = [record for record in allowed if satisfies(record, rule.conditions)]
    for name in rule.as_good:
        if not_worse is None:
            raise FieldError("pick", f"{name}~best needs a study's stored predictions")
        as_good = not_worse(name)
        allowed = [record for record in allowed if record.name in as_good]
    if not allowed:
        raise _nothing_satisfies(finished, rule)

    def total(record: TrialRecord) -> float:
        return math.fsum(weight * record.metrics[name] for name, weight in rule.weights.items())

    return min(allowed, key=lambda record: (total(record), *rank(record, served)))


def _nothing_satisfies(finished: Sequence[TrialRecord], rule: Rule) -> FieldError:
    asked = " and ".join([*map(str, rule.conditions), *(f"{name}~best" for name in rule.as_good)])
    bests = "; ".join(_best(finished, condition) for condition in rule.conditions)
    each = ", one condition at a time" if len(rule.conditions) > 1 else ""
    closest = f"Best value{each}: {bests}. " if bests else ""
    found = f"no complete trial satisfies {asked}"
    return FieldError("pick", found, f"{closest}Relax the condition.")


def _best(finished: Sequence[TrialRecord], condition: Condition) -> str:
    """The best value for the condition, and its trial."""
    sign = -1.0 if condition.comparison.startswith(">") else 1.0
    name = condition.metric
    measured = (record for record in finished if name in record.metrics)
    best = min(measured, key=lambda one: (sign * one.metrics[name], one.label, one.number))
    return f"{name} {best.metrics[name]:.6g} ({best.name})"
