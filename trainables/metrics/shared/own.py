"""Metrics of one's own: files in metrics/ of an extensions folder, in the same form as ours.

What reads a study takes their descriptions from the files' text. What trains also runs them.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import wraps
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.metrics.shared.metric import Metric, metrics_in, refuse_twice
from trainables.own_class import place_of
from trainables.plugins import Folder, in_a_line, own_stems, raised_at
from trainables.problems import FieldError, UserError

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = Folder("metric", "trainables.metrics")
OPTIONS = ("bins", "calibrated", "groups", "probs")  # passed to a function that takes them
SLACK = 1e-6  # of the largest value: float32 rounds
EXAMPLE = 'METRICS = {"mine": {"better": "lower", "matters": 0.01}}'
# Columns of `calstudy trials --csv` and of each epoch's row.
TAKEN = {
    *("trial", "method", "number", "state", "front", "epoch", "samples", "seconds", "attempts"),
    *("started", "ended", "device", "host", "training", "reason", "time", "train_loss"),
}


@dataclass(frozen=True)
class OwnMetric(Metric):
    """A metric of an extensions folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"(?!ts_|test_)[a-z][a-z0-9_]*", self.name) or self.name in TAKEN:
            found = f"'{self.name}' cannot be a metric's name"
            raise FieldError("", found, "Write a-z, 0-9 and _, without ts_ or test_ in front.")
        if self.removed_of:
            raise FieldError("removed_of", "is for metrics of calstudy", "Remove it.")


def own_metrics(folder: Path) -> dict[str, Metric]:
    """The metrics of an extensions folder by name. Raises FieldError at `extensions`."""
    found: dict[str, Metric] = {}
    for family in own_stems(folder / "metrics"):
        try:
            for metric in _checked(folder / "metrics" / f"{family}.py"):
                refuse_twice(metric, found)
                found[metric.name] = metric
        except FieldError as error:
            raise FieldError("extensions", f"{error.path}: {error.found}", error.mend) from None
    return found


def refuse_names(own: Iterable[Metric], ours: Collection[str]) -> None:
    """Raise FieldError for a file or a metric that has the name of one of ours."""
    FOLDER.names()
    for metric in own:
        if metric.name in ours:
            found = f"metrics/{metric.family}.py: '{metric.name}' is a metric of calstudy"
            raise FieldError("extensions", found, "Rename it.")


def _checked(file: Path) -> list[Metric]:
    """The metrics of a file, which has some and their functions."""
    where = f"metrics/{file.name}"
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    except (SyntaxError, ValueError) as error:
        raise FieldError(where, in_a_line(error)) from None
    made = list(metrics_in(tree, file.stem, OwnMetric))
    if not made:
        raise FieldError(where, "has no METRICS", f"Begin it with {EXAMPLE}.")
    known = _names(tree)
    for metric in made:
        if metric.function not in known:
            found = f"METRICS has {metric.name}, but there is no function {metric.function}"
            raise FieldError(where, found, f"Write def {metric.function}(logits, labels).")
    return made


def _names(tree: ast.Module) -> set[str]:
    """What a file defines, assigns or imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name)
    return found


def own_function(metric: Metric) -> Callable[..., Tensor]:
    """The function of a metric of one's own, which gives one number, or raises FieldError with
    file and line. It gets copies."""
    import torch

    where = f"metrics/{metric.family}.py"
    function: Any = getattr(FOLDER.module(metric.family), metric.function, None)
    if not callable(function):
        raise FieldError("extensions", f"{where}: {metric.function} is no function")

    place = place_of(function) or f"{where}, in {metric.function}"
    _check_signature(metric, function, place)

    @wraps(function)
    def measured(logits: Tensor, labels: Tensor, **options: Any) -> Tensor:
        try:
            with torch.no_grad():
                found = function(logits.clone(), labels.clone(), **options)
        except (Exception, SystemExit) as error:
            line = raised_at(error)
            if isinstance(error, MemoryError | UserError) or line is None:
                raise
            raise FieldError("extensions", f"{line}: {in_a_line(error)}") from error
        one = _one_number(found, place)
        _check_range(metric, float(one), place)
        return one

    return measured


def _check_signature(metric: Metric, function: Callable[..., Any], place: str) -> None:
    """Raise FieldError if the function does not take what calstudy passes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function in C tells none
        return
    options = {name: None for name in OPTIONS if name in signature.parameters}
    try:
        signature.bind(None, None, **options)
    except TypeError:
        found = f"takes {signature}, but calstudy passes (logits, labels)"
        mend = f"Write def {metric.function}(logits, labels)."
        raise FieldError("extensions", f"{place}: {found}", mend) from None


def _check_range(metric: Metric, value: float, place: str) -> None:
    """Raise FieldError for a value beyond `largest`, or below 0.

    An estimate of a calibration error that has no bias may be below 0: ours are.
    """
    if metric.largest is None or math.isnan(value):
        return
    least = -metric.largest if metric.kind == "calibration" else 0.0
    slack = SLACK * metric.largest
    if least - slack <= value <= metric.largest + slack:
        return
    found = f"gives {value:.6g}, but values lie in [{least:g}, {metric.largest:g}]"
    bad = ' and "reference": a bad value,' if metric.better == "lower" else ""
    wider = '"largest": the largest value, or ' if value > 0 else ""
    mend = f'Write {wider}"largest": null{bad} for values without a bound, in METRICS.'
    raise FieldError("extensions", f"{place}: {found}", mend)


def _one_number(found: Any, place: str) -> Tensor:
    """A metric's value as float64; NaN is undefined. Raises FieldError for anything else."""
    import torch

    if isinstance(found, torch.Tensor) and found.ndim == 0 and not found.is_complex():
        return found.double()
    if isinstance(found, Real):
        return torch.tensor(float(found), dtype=torch.float64)
    shown = type(found).__name__
    if isinstance(found, torch.Tensor):
        shown = f"a tensor {list(found.shape)}"
    raise FieldError("extensions", f"{place}: must return one number, got {shown}")
