"""Metrics of a classifier and its confidence. Pure functions of logits [N, K] and labels [N]; float64 inside.

Fractions in [0, 1], NLL in nats; binning is defined in binned.py and recorded with every tracked value as `CONVENTION`.
An undefined value (accuracy above 99% confidence if there is none, a debiased error of one sample) is NaN as a
function's result and absent from `evaluate`, as is top-5 accuracy for five classes or fewer.

Each file starts with the descriptions of its metrics (`trainables.metric.Metric`). Every trial stores the metrics
marked `stored`. The others are computed on request: by the trials of a study that has one as an objective, and by
`calstudy evaluate --all`. Predictions are stored, so any metric can be computed later.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.fields import FieldError, nearest
from trainables.metric import Metric
from trainables.plugins import stems

if TYPE_CHECKING:
    from torch import Tensor

# Recorded with every run: the text stays as it is while the rule does.
CONVENTION = "equal-width bins (lo, hi], first holds 0, float64 edges; adaptive: array_split, ties follow their first"
AFTER_TEMPERATURE = "ts_"
# The most informative four, where all are too many: history rows, model cards, other data.
ESSENTIAL = ("accuracy", "nll", "brier", "ece")
# What `calstudy evaluate` shows if asked for no others: the stored ones without error and top-5 accuracy.
MAIN = ("accuracy", "nll", "brier", "ece", "mce", "adaptive_ece", "classwise_ece", "debiased_l2")


@cache
def described() -> dict[str, Metric]:
    """The metrics' descriptions by name without `ts_`: the stored ones, then the others, by position."""
    found: dict[str, Metric] = {}
    for metric in (
        metric
        for folder in __path__
        for name in stems(Path(folder))
        for metric in _read(folder, name)
    ):
        if metric.name in found:
            problem = f"'{metric.name}' is already in {found[metric.name].family}.py; rename one."
            raise FieldError(f"metrics/{metric.family}.py", problem)
        found[metric.name] = metric
    return dict(sorted(found.items(), key=lambda item: (not item[1].stored, item[1].place)))


def _read(folder: str, family: str) -> Iterator[Metric]:
    """The metrics of a file; none if it has no METRICS.

    Parsed, not imported: readers of a study need only descriptions, and importing torch takes seconds.
    """
    file = Path(folder, f"{family}.py")
    for node in ast.parse(file.read_text(encoding="utf-8"), str(file)).body:
        match node:
            case ast.Assign([ast.Name("METRICS")], value) | ast.AnnAssign(
                ast.Name("METRICS"), _, ast.expr() as value
            ):
                yield from (
                    _metric(family, name, row) for name, row in _plain(family, value).items()
                )


def _plain(family: str, value: ast.expr) -> dict[str, dict[str, Any]]:
    try:
        return dict(ast.literal_eval(value))
    except ValueError:
        problem = (
            f"METRICS (line {value.lineno}) must contain only plain values: no names, no calls."
        )
        raise FieldError(f"metrics/{family}.py", problem) from None


def _metric(family: str, name: str, row: dict[str, Any]) -> Metric:
    try:
        for key in row:
            Metric.field_named(key)
        return Metric(
            name=name, family=family, **{"function": name, "label": name.replace("_", " "), **row}
        )
    except FieldError as error:
        raise error.under(f"metrics/{family}.py: {name}") from None


def names() -> list[str]:
    """All metrics; with the prefix `ts_` the same after temperature scaling."""
    return [*described(), *(AFTER_TEMPERATURE + name for name in described())]


def check(name: str) -> None:
    """Raise FieldError with the nearest names if there is no such metric."""
    if name not in names():
        raise FieldError("", f"there is no metric '{name}'.{nearest(name, names())}")


def describe(name: str) -> Metric:
    """The description of a metric (a `ts_` metric is the same one, of calibrated logits)."""
    check(name)
    return described()[name.removeprefix(AFTER_TEMPERATURE)]


def find(name: str) -> Callable[..., Tensor]:
    """The function of that name."""
    metric = describe(name)
    found: Any = getattr(importlib.import_module(f"{__name__}.{metric.family}"), metric.function)
    return found


def available(num_classes: int) -> Iterator[str]:
    """The metrics defined for that many classes: no top-5 accuracy for five or fewer."""
    return (name for name, metric in described().items() if num_classes >= metric.fewest_classes)


def stored() -> list[str]:
    """The metrics that every trial stores."""
    return [name for name, metric in described().items() if metric.stored]


def evaluate(
    logits: Tensor, labels: Tensor, bins: int = 15, also: Collection[str] = ()
) -> dict[str, float]:
    """The stored metrics and those in `also`, as far as they are defined for these predictions.

    logits: [N, K]; labels: [N] int64; bins: for metrics that have bins.
    """
    names = [name for name, metric in described().items() if metric.stored or name in also]
    return measure(logits, labels, names, bins)


def measure(
    logits: Tensor, labels: Tensor, names: Collection[str], bins: int = 15
) -> dict[str, float]:
    """The metrics of these names (without `ts_`), in this order, as far as they are defined for these predictions."""
    logits = logits.double()
    defined = [name for name in names if logits.shape[1] >= described()[name].fewest_classes]
    values = {name: float(find(name)(logits, labels, **_options(name, bins))) for name in defined}
    return {name: value for name, value in values.items() if value == value}


def costs(logits: Tensor, labels: Tensor, names: Collection[str]) -> list[float]:
    """`measure`, with signs flipped where needed so that smaller is better."""
    return [describe(name).sign * value for name, value in measure(logits, labels, names).items()]


def _options(name: str, bins: int) -> dict[str, int]:
    return {"bins": bins} if "bins" in inspect.signature(find(name)).parameters else {}
