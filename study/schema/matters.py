"""The smallest differences that matter to a user, by objective. The answer counts in them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from study.schema.objective import Objective, plain_name
from trainables.metrics import described
from trainables.problems import FieldError, nearest

UNSAID = 0.01  # of a metric that does not say it, and is no objective
# Beside the objectives. Proper scores tell two models apart at sizes at which ECE seldom does.
SCORES = ("nll", "brier")


def read_matters(plain: Any, objectives: Sequence[Objective]) -> dict[str, float]:
    """The study's `matters:` by metric without `ts_`, as a temperature changes no unit.

    NLL and Brier may be named though they are no objectives: models are compared in them too.
    Raises FieldError, with the path below `matters`.
    """
    plain = {} if plain is None else plain
    if not isinstance(plain, Mapping):
        example = "{accuracy: 0.01}"
        raise FieldError(
            "matters", f"must map objectives to numbers, such as {example}, got {plain!r}"
        )
    known: list[str] = []
    for one in objectives:
        known += dict.fromkeys((one.metric, plain_name(one.metric)))
    known += [name for name in SCORES if name not in known]
    found: dict[str, float] = {}
    for name, value in plain.items():
        if name not in known:
            listed = ", ".join(one.metric for one in objectives)
            raise FieldError(
                f"matters.{name}",
                f"'{name}' is no objective of this study, nor nll or brier; the objectives are"
                f" {listed}",
                nearest(str(name), known),
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 < value < math.inf):
            raise FieldError(f"matters.{name}", f"must be a number above 0, got {value!r}")
        if found.setdefault(plain_name(name), float(value)) != value:
            raise FieldError(
                f"matters.{name}",
                f"'{plain_name(name)}' has another value",
                "Write one of the two.",
            )
    return found


def check_matters(objectives: Sequence[Objective], own: Mapping[str, float]) -> None:
    """Raise FieldError if neither the study nor the metric says what matters in an objective."""
    for objective in objectives:
        name = plain_name(objective.metric)
        if name not in own and described()[name].matters is None:
            raise FieldError(
                f"matters.{name}",
                f"is missing: {name} does not say which difference matters",
                f"Write matters: {{{name}: NUMBER}}.",
            )


def what_matters(
    objectives: Sequence[Objective], own: Mapping[str, float], num_classes: int
) -> dict[str, float]:
    """What matters, by metric without `ts_`: the study's own number, else the metric's."""
    names = dict.fromkeys([*(plain_name(one.metric) for one in objectives), *own])
    return {name: matters_in(name, own, num_classes) for name in names}


def matters_in(metric: str, own: Mapping[str, float], num_classes: int) -> float:
    """The smallest difference that matters in any metric, objective or not."""
    name = plain_name(metric)
    return own.get(name) or described()[name].smallest(num_classes) or UNSAID


def units(objectives: Sequence[Objective], matters: Mapping[str, float]) -> dict[str, float]:
    """The difference that counts as one, by objective: what matters, times its family's size.

    So ECE and adaptive ECE together count as one objective: they measure the same.
    """
    families = Counter(family(one.metric) for one in objectives)
    return {
        one.metric: matters[plain_name(one.metric)] * families[family(one.metric)]
        for one in objectives
    }


def family(metric: str) -> str:
    """`calibration` for each calibration error; any other metric is a family of its own."""
    name = plain_name(metric)
    return "calibration" if described()[name].kind == "calibration" else name
