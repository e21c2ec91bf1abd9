"""Conditions on a trial's metrics: `accuracy >= 0.95`, or relative to the best trial: `accuracy >= best - 0.02`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from study.schema.objective import Objective
from trainables import metrics
from trainables.fields import FieldError

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
ROUNDING = 1e-9
_CONDITION = re.compile(r"(\w+)\s*(>=|<=|>|<)\s*([^\s<>=]+)")
_RELATIVE = re.compile(r"(\w+)\s*(>=|<=|>|<)\s*best(?:\s*([+-])\s*(\S+))?")


@dataclass(frozen=True)
class Condition:
    """A bound on a validation metric; a relative one is a distance from the best value of the study."""

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
        """The bound as a value of the metric. best: the best value of each objective in the study."""
        if not self.relative:
            return self.bound
        return best[self.metric] + metrics.describe(self.metric).sign * self.bound

    def holds(self, values: Mapping[str, float], best: Mapping[str, float] | None = None) -> bool:
        """Whether the values meet it. A metric that was not measured fails."""
        if self.metric not in values:
            return False
        # A value exactly at the limit must not depend on the last bit of `best - 0.1`.
        slack = (
            ROUNDING if self.comparison == "<=" else -ROUNDING if self.comparison == ">=" else 0.0
        )
        return _COMPARISONS[self.comparison](values[self.metric], self.limit(best or {}) + slack)


def read_condition(where: str, text: str) -> Condition:
    """`accuracy>=0.95`. Raises FieldError at `where`."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        if "best" in text:
            problem = (
                f"cannot parse '{text}'; write METRIC >= best - NUMBER: accuracy >= best - 0.02."
            )
            raise FieldError(where, problem)
        problem = f"cannot parse '{text}'; write METRIC, one of {' '.join(_COMPARISONS)}, NUMBER: accuracy>=0.95."
        raise FieldError(where, problem)
    metric, comparison, number = found.groups()
    check_metric(where, metric)
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise FieldError(
            where, f"'{number}' in '{text}' is not a number; write a bound such as accuracy>=0.95."
        )
    largest = metrics.describe(metric).largest
    if bound < 0 or (largest is not None and bound > largest):
        percent = f" Did you mean {bound / 100:g}?" if largest == 1 and 1 < bound <= 100 else ""
        within = "is never negative" if largest is None else f"lies in [0, {largest:g}]"
        raise FieldError(where, f"{metric} {within}, got {bound:g}.{percent}")
    return Condition(metric, comparison, bound)


def check_metric(where: str, metric: str) -> None:
    try:
        metrics.check(metric)
    except FieldError as error:
        raise FieldError(where, error.problem) from None


# ---- the study's constraints ---------------------------------------------------------------------------------------


def read_constraints(plain: Any, objectives: Sequence[Objective]) -> tuple[Condition, ...]:
    """The study's `constraints:`, a list of conditions. Raises FieldError with the entry's index."""
    if plain is None:
        return ()
    if not isinstance(plain, list | tuple):
        raise FieldError(
            "constraints", f'must be a list such as ["accuracy >= best - 0.02"], got {plain!r}.'
        )
    found = [
        _constraint(f"constraints[{index}]", text, objectives) for index, text in enumerate(plain)
    ]
    for index, condition in enumerate(found):
        if condition in found[:index]:
            raise FieldError(f"constraints[{index}]", f"'{condition}' is listed twice; remove one.")
    return tuple(found)


def _constraint(where: str, text: Any, objectives: Sequence[Objective]) -> Condition:
    if not isinstance(text, str):
        raise FieldError(where, f'must be text such as "accuracy >= best - 0.02", got {text!r}.')
    relative = _RELATIVE.fullmatch(text.strip())
    if relative is None:
        found = read_condition(where, text.strip())
        _check_is_known(where, found.metric, [objective.metric for objective in objectives])
        if metrics.describe(found.metric).better is None:
            raise FieldError(where, f"{found.metric} has no better direction; use another metric.")
    else:
        found = _relative(where, relative, [objective.metric for objective in objectives])
    higher = metrics.describe(found.metric).better == "higher"
    if found.comparison.startswith(">") != higher:
        wanted = f"'{found.comparison.translate(_TURNED)}'"
        better = "higher" if higher else "lower"
        raise FieldError(
            where,
            f"'{text}' keeps the worse trials: {better} {found.metric} is better; write {wanted}.",
        )
    return found


_TURNED = str.maketrans("<>", "><")


def _relative(where: str, found: re.Match[str], objectives: Collection[str]) -> Condition:
    text, (metric, comparison, sign, number) = found[0], found.groups()
    check_metric(where, metric)
    if metric not in objectives:
        problem = f"'best' is known of objectives only ({', '.join(objectives)}), not of {metric}; write a number."
        raise FieldError(where, problem)
    try:
        distance = float(number) if number is not None else 0.0
    except ValueError:
        distance = math.nan
    if not (math.isfinite(distance) and distance >= 0):
        raise FieldError(
            where, f"'{number}' in '{text}' is not a number; write accuracy >= best - 0.02."
        )
    if comparison in ("<", ">"):
        raise FieldError(
            where, f"'{text}' may leave no trial, not even the best; write {comparison}= instead."
        )
    worse = "-" if metrics.describe(metric).better == "higher" else "+"
    if sign is not None and sign != worse:
        raise FieldError(
            where, f"'{text}' asks for more than the best; write best {worse} {distance:g}."
        )
    largest = metrics.describe(metric).largest
    if largest is not None and distance > largest:
        percent = f" Did you mean {distance / 100:g}?" if largest == 1 and distance <= 100 else ""
        raise FieldError(
            where, f"{metric} lies in [0, {largest:g}], got a distance of {distance:g}.{percent}"
        )
    return Condition(metric, comparison, distance, relative=True)


def _check_is_known(where: str, metric: str, objectives: Collection[str]) -> None:
    """Raise FieldError for a metric that the study's trials do not store."""
    plain = metric.removeprefix(metrics.AFTER_TEMPERATURE)
    if plain not in metrics.stored() and metric not in objectives and plain not in objectives:
        raise FieldError(
            where, f"trials do not store {metric}; make it an objective, or use another metric."
        )
