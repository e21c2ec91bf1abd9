"""Metrics of a classifier, pure functions of logits [N, K] and labels [N]; float64 inside.

Fractions in [0, 1], NLL in nats; binning is defined in binned.py and recorded with every tracked
value as `CONVENTION`. An undefined value (accuracy above 99% confidence if there is none, a
debiased error of one sample) is NaN as a function's result and absent from `measure`, as is top-5
accuracy for five classes or fewer.

Each file starts with the descriptions of its metrics (`shared.metric.Metric`). Every trial stores
the metrics marked `stored`. The others are computed on request: by the trials of a study that has
one as an objective, and by `calstudy evaluate --all`. Predictions are stored, so any metric can be
computed later.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.metrics.shared.metric import Metric
from trainables.plain import Value
from trainables.problems import FieldError, nearest

if TYPE_CHECKING:
    from torch import Tensor

# Recorded with every run: the text stays as it is while the rule does.
CONVENTION = (
    "equal-width bins (lo, hi], first holds 0, float64 edges; adaptive: array_split, ties follow"
    " their first"
)
AFTER_TEMPERATURE = "ts_"
# The most informative four, where all are too many or too noisy: history rows, model cards, other
# data, `calstudy evaluate`.
ESSENTIAL = ("accuracy", "nll", "brier", "ece")


@cache
def described() -> dict[str, Metric]:
    """The metrics by name without `ts_`: the stored ones, then the others, by position."""
    found: dict[str, Metric] = {}
    files = chain.from_iterable(sorted(Path(folder).glob("[!_]*.py")) for folder in __path__)
    for metric in chain.from_iterable(map(_read, files)):
        if metric.name in found:
            raise FieldError(
                f"metrics/{metric.family}.py",
                f"'{metric.name}' is already in {found[metric.name].family}.py",
                "Rename one.",
            )
        found[metric.name] = metric
    return dict(sorted(found.items(), key=lambda item: (not item[1].stored, item[1].place)))


def _read(file: Path) -> Iterator[Metric]:
    """The metrics of a file; none if it has no METRICS.

    Parsed, not imported: readers of a study need only descriptions, and importing torch takes
    seconds.
    """
    for node in ast.parse(file.read_text(encoding="utf-8"), str(file)).body:
        match node:
            case ast.Assign([ast.Name("METRICS")], value) | ast.AnnAssign(
                ast.Name("METRICS"), _, ast.expr() as value
            ):
                for name, row in _plain(file.stem, value).items():
                    yield _metric(file.stem, name, **row)


def _plain(family: str, value: ast.expr) -> dict[str, dict[str, Value]]:
    try:
        return dict(ast.literal_eval(value))
    except ValueError:
        found = f"METRICS (line {value.lineno}) must contain only plain values: no names, no calls"
        raise FieldError(f"metrics/{family}.py", found) from None


def _metric(family: str, name: str, **row: Any) -> Metric:
    try:
        for key in row:
            Metric.field_named(key)
        usual = {"function": name, "label": name.replace("_", " ")}
        return Metric(name=name, family=family, **usual | row)
    except FieldError as error:
        raise error.under(f"metrics/{family}.py: {name}") from None


def names() -> list[str]:
    """All metrics; with `ts_` those after temperature scaling, which removes some of them."""
    after = (name for name, metric in described().items() if not metric.removed_of)
    return [*described(), *(AFTER_TEMPERATURE + name for name in after)]


def check(name: str) -> None:
    """Raise FieldError with the nearest names if there is no such metric."""
    plain = name.removeprefix(AFTER_TEMPERATURE)
    if plain != name and plain in described() and (score := described()[plain].removed_of):
        found = f"{plain} is what a temperature removes of {score}: it has no value after one"
        mend = f"Use {plain}, or {AFTER_TEMPERATURE}{score} for what is left."
        raise FieldError("", found, mend)
    if name not in names():
        listed = "`calstudy list metrics` has all"
        raise FieldError("", f"there is no metric '{name}'", nearest(name, names(), listed))


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


def measure_stored(
    logits: Tensor,
    labels: Tensor,
    bins: int = 15,
    also: Collection[str] = (),
    calibrated: Tensor | None = None,
) -> dict[str, float]:
    """The stored metrics and those in `also`, as far as they are defined for these predictions.

    logits: [N, K]; labels: [N] int64; bins: for metrics that have bins; calibrated: logits after
    temperature scaling, for what a temperature removes (default: cross-fitted).
    """
    names = [name for name, metric in described().items() if metric.stored or name in also]
    return measure(logits, labels, names, bins, calibrated)


def measure(
    logits: Tensor,
    labels: Tensor,
    names: Collection[str],
    bins: int = 15,
    calibrated: Tensor | None = None,
    groups: Tensor | None = None,
) -> dict[str, float]:
    """The metrics of these names (no `ts_`), in order, as far as they are defined here.

    groups: samples that belong together, [N], for a temperature that is cross-fitted here.
    """
    logits = logits.double()
    values = {}
    for name in names:
        if logits.shape[1] >= described()[name].fewest_classes:
            options = _taken(name, bins=bins, calibrated=calibrated, groups=groups)
            values[name] = float(find(name)(logits, labels, **options))
    return {name: value for name, value in values.items() if not math.isnan(value)}


def costs(
    logits: Tensor, labels: Tensor, names: Collection[str], groups: Tensor | None = None
) -> list[float]:
    """`measure`, with signs flipped where needed so that smaller is better."""
    found = measure(logits, labels, names, groups=groups)
    return [describe(name).sign * value for name, value in found.items()]


def value(name: str, logits: Tensor, labels: Tensor, calibrated: Tensor) -> float:
    """One metric, `ts_` included, of logits and of the same after temperature scaling."""
    scaled = calibrated if name.startswith(AFTER_TEMPERATURE) else logits
    return float(find(name)(scaled, labels, **_taken(name, calibrated=calibrated)))


def _taken(name: str, **options: int | Tensor | None) -> dict[str, int | Tensor | None]:
    """The options that the metric's function takes."""
    parameters = inspect.signature(find(name)).parameters
    return {option: value for option, value in options.items() if option in parameters}
