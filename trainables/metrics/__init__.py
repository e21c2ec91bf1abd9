"""Metrics of a classifier and of its confidence. Pure functions of logits [N, K] and labels [N]; float64 inside.

Fractions in [0, 1], NLL in nats; where and how bins are drawn is said in binned.py, and recorded with every tracked
number as `CONVENTION`. A value that is not defined (accuracy above 99% where nothing is that sure, a debiased error of
one sample) is NaN as a function's result and absent from `evaluate`, as top-5 is for five classes or fewer.

Every trial stores the metrics of `STORED`. Those of `ON_REQUEST` are computed where they are named: by the trials of a
study that has one as an objective, and by `calstudy evaluate`, which shows them all. Predictions are kept, so that any
of them can be had later.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from trainables.fields import FieldError, nearest

if TYPE_CHECKING:
    from torch import Tensor

CONVENTION = "equal-width bins (lo, hi], first holds 0, float64 edges; adaptive: array_split, ties follow their first"
AFTER_TEMPERATURE = "ts_"

# Name -> the function and its module in this folder, imported when asked for: who reads a study's numbers needs their
# names alone, and torch takes seconds.
STORED = {
    "accuracy": "scores.accuracy",
    "error": "scores.error",
    "top5_accuracy": "scores.top5_accuracy",
    "nll": "scores.negative_log_likelihood",
    "brier": "scores.brier_score",
    "ece": "binned.expected_calibration_error",
    "mce": "binned.maximum_calibration_error",
    "adaptive_ece": "binned.adaptive_calibration_error",
    "classwise_ece": "classwise.classwise_calibration_error",
    "debiased_l2": "binned.debiased_l2_calibration_error",
}
ON_REQUEST = {
    "brier_calibration": "classwise.brier_calibration",
    "brier_refinement": "classwise.brier_refinement",
    "share_above_99": "scores.share_above_99",
    "accuracy_above_99": "scores.accuracy_above_99",
    "mce_of_ten": "binned.maximum_calibration_error_of_ten",
    "ace_unweighted": "binned.average_calibration_error",
    "rmsce": "binned.root_mean_square_calibration_error",
    "l2": "binned.l2_calibration_error",
    "smooth_ece": "smooth.smooth_calibration_error",
    "thresholded_classwise_ece": "classwise.thresholded_classwise_calibration_error",
    "debiased_l2_marginal": "classwise.debiased_l2_marginal_error",
    "ece_sweep": "sweep.sweep_calibration_error",
    "ece_sweep_equal_width": "sweep.sweep_calibration_error_equal_width",
    "mmce": "kernel.maximum_mean_calibration_error",
    "skce_top_label": "kernel.top_label_kernel_error",
    "skce_top_label_unbiased": "kernel.top_label_kernel_error_unbiased",
    "skce_top_label_linear": "kernel.top_label_kernel_error_linear",
    "skce": "kernel.kernel_calibration_error",
    "skce_unbiased": "kernel.kernel_calibration_error_unbiased",
    "skce_linear": "kernel.kernel_calibration_error_linear",
}
_METRICS = {**STORED, **ON_REQUEST}


def names() -> list[str]:
    """All metrics; with `ts_` in front the same after temperature scaling."""
    return [*_METRICS, *(AFTER_TEMPERATURE + name for name in _METRICS)]


def check(name: str) -> None:
    """Raise FieldError with the nearest names where there is no such metric."""
    if name not in names():
        raise FieldError("", f"there is no metric '{name}'.{nearest(name, names())}")


def find(name: str) -> Callable[..., Tensor]:
    """The function of that name (a `ts_` metric is the same function, of calibrated logits)."""
    check(name)
    module, _, function = _METRICS[name.removeprefix(AFTER_TEMPERATURE)].partition(".")
    found: Any = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return found


def available(num_classes: int) -> Iterator[str]:
    """The metrics that say something for that many classes: no top-5 for five or fewer."""
    return (name for name in _METRICS if num_classes > 5 or name != "top5_accuracy")


def evaluate(logits: Tensor, labels: Tensor, bins: int = 15, also: Collection[str] = ()) -> dict[str, float]:
    """The metrics of `STORED`, and those of `ON_REQUEST` named in `also`, that are defined for these predictions.

    logits: [N, K]; labels: [N] int64; bins: of those metrics that have bins.
    """
    logits = logits.double()
    wanted = [name for name in available(logits.shape[1]) if name in STORED or name in also]
    values = {name: float(find(name)(logits, labels, **_options(name, bins))) for name in wanted}
    return {name: value for name, value in values.items() if value == value}


def _options(name: str, bins: int) -> dict[str, int]:
    return {"bins": bins} if "bins" in inspect.signature(find(name)).parameters else {}
