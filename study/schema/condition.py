"""Conditions on a trial's metrics: `accuracy >= 0.95`, or `>= best - 0.02`: than the best trial."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from study.schema.objective import Objective, plain_name
from trainables import metrics
from trainables.problems import FieldError

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
ROUNDING = 1e-9
# A value exactly at the limit must not depend on the last bit of `best - 0.1`.
_SLACK = {"<=": ROUNDING, ">=": -ROUNDING}
_CONDITION = re.compile(r"(\w+)\s*(>=|<=|>|<)\s*([^\s<>=]+)")
_RELATIVE = re.compile(r"(\w+)\s*(>=|<=|>|<)\s*best(?:\s*([+-])\s*(\S+))?")


@dataclass(frozen=True)
class Condition:
    """A bound on a validation metric; a relative one is a distance from the study's best value."""

    metric: str
    comparison: str  # >= <= > <
    bound: float
    relative: bool = False

    def __str__(self) -> str:
        number = repr(self.bound).removesuffix(".0")  # every digit: it is read back
        if not self.relative:
            return f"{self.metric} {self.comparison} {number}"
        sign = "-" if self.comparison.startswith(">") else "+"
        return f"{self.metric} {self.comparison} best {sign} {number}"

    def limit(self, best: Mapping[str, float]) -> float:
        """The bound as a value of the metric. best: each objective's best value in the study."""
        if not self.relative:
            return self.bound
        return best[self.metric] + metrics.describe(self.metric).sign * self.bound

    def holds(self, values: Mapping[str, float], best: Mapping[str, float] | None = None) -> bool:
        """Whether the values meet it. A metric that was not measured fails."""
        if self.metric not in values:
            return False
        limit = self.limit(best or {}) + _SLACK.get(self.comparison, 0.0)
        return _COMPARISONS[self.comparison](values[self.metric], limit)


def read_condition(where: str, text: str) -> Condition:
    """`accuracy>=0.95`. Raises FieldError at `where`."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        mend = f"Write METRIC, one of {' '.join(_COMPARISONS)}, NUMBER: accuracy>=0.95."
        if "best" in text:
            mend = "Write METRIC >= best - NUMBER: accuracy >= best - 0.02."
        raise FieldError(where, f"cannot parse '{text}'", mend)
    metric, comparison, number = found.groups()
    check_metric(where, metric)
    bound = _number(number)
    if not math.isfinite(bound):
        mend = "Write a bound such as accuracy>=0.95."
        raise FieldError(where, f"'{number}' in '{text}' is not a number", mend)
    largest = metrics.describe(metric).largest
    if bound < 0 or (largest is not None and bound > largest):
        within = "is never negative" if largest is None else f"lies in [0, {largest:g}]"
        percent = _as_fraction(bound, largest)
        raise FieldError(where, f"{metric} {within}, got {bound:g}", percent)
    return Condition(metric, comparison, bound)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _as_fraction(value: float, largest: float | None) -> str:
    """A question whether a percentage was meant as a fraction; else empty."""
    return f"Did you mean {value / 100:g}?" if largest == 1 and 1 < value <= 100 else ""


def check_metric(where: str, metric: str) -> None:
    try:
        metrics.check(metric)
    except FieldError as error:
        raise error.at(where) from None


# ---- the study's constraints ---------------------------------------------------------------------


def read_constraints(plain: Any, objectives: Sequence[Objective]) -> tuple[Condition, ...]:
    """The conditions of `constraints:`. Raises FieldError with the entry's index."""
    if plain is None:
        return ()
    if not isinstance(plain, list | tuple):
        raise FieldError(
            "constraints", f'must be a list such as ["accuracy >= best - 0.02"], got {plain!r}'
        )
    found = [
        _constraint(f"constraints[{index}]", text, objectives) for index, text in enumerate(plain)
    ]
    for index, condition in enumerate(found):
        if condition in found[:index]:
            raise FieldError(
                f"constraints[{index}]", f"'{condition}' is listed twice", "Remove one."
            )
    return tuple(found)


def _constraint(where: str, text: Any, objectives: Sequence[Objective]) -> Condition:
    if not isinstance(text, str):
        raise FieldError(where, f'must be text such as "accuracy >= best - 0.02", got {text!r}')
    names = [one.metric for one in objectives]
    relative = _RELATIVE.fullmatch(text.strip())
    if relative is None:
        found = read_condition(where, text.strip())
        _check_is_known(where, found.metric, names)
        if metrics.describe(found.metric).better is None:
            raise FieldError(
                where, f"{found.metric} has no better direction", "Use another metric."
            )
    else:
        found = _relative(where, relative, names)
    better = metrics.describe(found.metric).better
    if found.comparison.startswith(">") != (better == "higher"):
        problem = f"'{text}' keeps the worse trials: {better} {found.metric} is better"
        wanted = found.comparison.translate(_TURNED)
        raise FieldError(where, problem, f"Write '{wanted}'.")
    return found


_TURNED = str.maketrans("<>", "><")


def _relative(where: str, found: re.Match[str], objectives: Collection[str]) -> Condition:
    text = found[0]
    metric, comparison, sign, number = found.groups()
    check_metric(where, metric)
    if metric not in objectives:
        known = f"'best' is known of objectives only ({', '.join(objectives)})"
        raise FieldError(where, f"{known}, not of {metric}", "Write a number.")
    distance = _number(number or "0")
    if not (math.isfinite(distance) and distance >= 0):
        raise FieldError(
            where, f"'{number}' in '{text}' is not a number", "Write accuracy >= best - 0.02."
        )
    if comparison in ("<", ">"):
        raise FieldError(
            where,
            f"'{text}' may leave no trial, not even the best",
            f"Write {comparison}= instead.",
        )
    described = metrics.describe(metric)
    worse = "-" if described.better == "higher" else "+"
    if sign is not None and sign != worse:
        raise FieldError(
            where, f"'{text}' asks for more than the best", f"Write best {worse} {distance:g}."
        )
    largest = described.largest
    if largest is not None and distance > largest:
        got = f"{metric} lies in [0, {largest:g}], got a distance of {distance:g}"
        raise FieldError(where, got, _as_fraction(distance, largest))
    return Condition(metric, comparison, distance, relative=True)


def _check_is_known(where: str, metric: str, objectives: Collection[str]) -> None:
    """Raise FieldError for a metric that the study's trials do not store."""
    plain = plain_name(metric)
    if plain not in metrics.stored() and metric not in objectives and plain not in objectives:
        mend = "Make it an objective, or use another metric."
        raise FieldError(where, f"trials do not store {metric}", mend)
