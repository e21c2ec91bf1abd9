"""Slow definitions in plain NumPy float64, written from the formulas and never from the code they check."""

from tests.references.gradients import central_differences
from tests.references.losses import cross_entropy, focal, label_smoothing, mbls, smooth_ece
from tests.references.metrics import (
    accuracy,
    adaptive_ece,
    binned_gaps,
    brier,
    classwise_ece,
    ece,
    error,
    fit_temperature,
    mce,
    nll,
    top5_accuracy,
)

__all__ = [
    "accuracy",
    "adaptive_ece",
    "binned_gaps",
    "brier",
    "central_differences",
    "classwise_ece",
    "cross_entropy",
    "ece",
    "error",
    "fit_temperature",
    "focal",
    "label_smoothing",
    "mbls",
    "mce",
    "nll",
    "smooth_ece",
    "top5_accuracy",
]
