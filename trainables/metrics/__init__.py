"""Metrics of a classifier, pure functions of logits [N, K] and labels [N]; float64 inside.

Where probabilities were given, `probs` [N, K] has them as they were, and logits their logarithms:
a softmax of these can move a probability by a unit in the last place, and so over a bin's edge.

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
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.metrics.shared.metric import Metric, metrics_in, refuse_twice
from trainables.metrics.shared.own import OwnMetric, own_function, own_metrics, refuse_names
from trainables.plugins import extension_folder, metrics_read, opened_extensions
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
WITH_MASKS = ("miou",)  # stored too by every trial on images with masks


@cache
def ours() -> dict[str, Metric]:
    """The metrics of calstudy by name without `ts_`: the stored ones, then the others, by
    position."""
    found: dict[str, Metric] = {}
    for file in chain.from_iterable(sorted(Path(folder).glob("[!_]*.py")) for folder in __path__):
        for metric in metrics_in(ast.parse(file.read_text(encoding="utf-8")), file.stem):
            refuse_twice(metric, found)
            found[metric.name] = metric
    return _in_order(found)


def described() -> dict[str, Metric]:
    """Ours and those of one's own: of the extensions folder in use, and of the studies opened."""
    return _described(metrics_read(), opened_extensions())


@lru_cache(maxsize=1)
def _described(number: int, opened: tuple[Path, ...]) -> dict[str, Metric]:
    found = {}
    for folder in opened:
        found.update(own_metrics(folder))
    return _in_order({**found, **_in_use(number), **ours()})


def measurable() -> dict[str, Metric]:
    """Those whose functions are there: ours, and of the extensions folder in use."""
    return _measurable(metrics_read())


@lru_cache(maxsize=1)
def _measurable(number: int) -> dict[str, Metric]:
    return _in_order({**_in_use(number), **ours()})


@lru_cache(maxsize=1)
def _in_use(_: int) -> dict[str, Metric]:
    folder = extension_folder("metrics")
    return {} if folder is None else own_metrics(folder.parent)


def _in_order(found: dict[str, Metric]) -> dict[str, Metric]:
    return dict(sorted(found.items(), key=lambda item: (not item[1].stored, item[1].place)))


def check_own() -> None:
    """Raise FieldError if a metric of the extensions folder in use cannot be told from ours."""
    if extension_folder("metrics") is not None:
        refuse_names(_in_use(metrics_read()).values(), ours())


def load_own(also: Collection[str]) -> list[str]:
    """Import the files of one's own metrics that a trial measures: the stored ones, and `also`.

    Returns their names. Raises FieldError if one cannot be imported.
    """
    plain = {name.removeprefix(AFTER_TEMPERATURE) for name in also}
    names = [
        name
        for name, metric in measurable().items()
        if isinstance(metric, OwnMetric) and (metric.stored or name in plain)
    ]
    for name in names:
        find(name)
    return names


def measure_own(logits: Tensor, labels: Tensor, also: Collection[str]) -> dict[str, float]:
    """The metrics of `load_own`. Raises FieldError where one fails."""
    return measure(logits, labels, load_own(also))


def is_own(name: str) -> bool:
    """Whether a metric, `ts_` included, is one's own."""
    return isinstance(describe(name), OwnMetric)


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


def check_measurable(name: str) -> None:
    """Raise FieldError for a metric of one's own that is not of the extensions folder in use."""
    if name.removeprefix(AFTER_TEMPERATURE) not in measurable():
        raise FieldError("", f"there is no metric '{name}'", nearest(name, measurable()))


def describe(name: str) -> Metric:
    """The description of a metric (a `ts_` metric is the same one, of calibrated logits)."""
    check(name)
    return described()[name.removeprefix(AFTER_TEMPERATURE)]


def find(name: str) -> Callable[..., Tensor]:
    """The function of that name."""
    metric = describe(name)
    if isinstance(metric, OwnMetric):
        check_measurable(name)
        return own_function(metric)
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
    probs: Tensor | None = None,
) -> dict[str, float]:
    """The stored metrics and those in `also`, as far as they are defined for these predictions.

    logits: [N, K]; labels: [N] int64; bins: for metrics that have bins; calibrated: logits after
    temperature scaling, for what a temperature removes (default: cross-fitted); probs: as in
    `measure`.
    """
    names = [name for name, metric in measurable().items() if metric.stored or name in also]
    return measure(logits, labels, names, bins, calibrated, probs=probs)


def measure(
    logits: Tensor,
    labels: Tensor,
    names: Collection[str],
    bins: int = 15,
    calibrated: Tensor | None = None,
    groups: Tensor | None = None,
    probs: Tensor | None = None,
) -> dict[str, float]:
    """The metrics of these names (no `ts_`), in order, as far as they are defined here.

    groups: samples that belong together, [N], for a temperature that is cross-fitted here. probs:
    probabilities [N, K] of which the logits are the logarithms; they are binned as they are.
    """
    logits = logits.double()
    values = {}
    for name in names:
        if logits.shape[1] >= described()[name].fewest_classes:
            options = _taken(name, bins=bins, calibrated=calibrated, groups=groups, probs=probs)
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
