"""Post-hoc calibrators on the same predictions: cross-fitted, and each less one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from study.uncertainty.bootstrap import RESAMPLES, side_of
from study.uncertainty.forms import difference_text
from study.uncertainty.intervals import LEVEL, Interval
from study.uncertainty.resampling import draws_for, too_few
from trainables import metrics
from trainables.metrics.shared import post_hoc
from trainables.metrics.shared.structured import MATRIX, MOST_CLASSES
from trainables.outputs.predictions import Predictions

if TYPE_CHECKING:
    from torch import Tensor

Rows = dict[str, dict[str, float]]
NONE = "none"  # the row of the predictions as they are
REFERENCE = "temperature"
DECIDING = ("nll", "brier", "ece")


def possible(names: Iterable[str], predictions: Predictions) -> list[str]:
    """The names without the matrix, where it would be of too many classes."""
    is_large = predictions.logits.shape[1] > MOST_CLASSES
    return [name for name in names if not (is_large and name == MATRIX)]


def calibrators(
    predictions: Predictions,
    names: Sequence[str] = (),
    bins: int = 15,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    reference: str = REFERENCE,
    say: Callable[[str], object] = lambda doing: None,
) -> Rows:
    """The numbers of `none` and of these calibrators, each cross-fitted; see `compared`.

    names: by default all, without the matrix of too many classes. Raises FieldError as a fit does.
    """
    logits, labels = predictions.logits, predictions.labels
    found = {NONE: logits}
    fitted = {}
    wanted = names or possible(post_hoc.FITS, predictions)
    for name in dict.fromkeys([*({reference} - {NONE}), *wanted]):
        say(f"post-hoc calibration: {name}")
        fit = post_hoc.FITS[name]
        found[name] = post_hoc.cross_fitted(logits, labels, fit=fit, groups=predictions.groups)
        if name.startswith(REFERENCE):
            fitted[name] = {"fitted": float(fit(logits, labels).temperature)}  # type: ignore[attr-defined]
    rows = compared(predictions, found, bins, resamples, level, reference)
    return {name: row | fitted.get(name, {}) for name, row in rows.items()}


def compared(
    predictions: Predictions,
    found: Mapping[str, Tensor],
    bins: int = 15,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    reference: str = REFERENCE,
) -> Rows:
    """{calibrator: its numbers} of calibrated logits [N, K], those of `none` as they are.

    accuracy, nll, brier, ece; changed: how many classes are predicted otherwise; nll_less,
    brier_less, ece_less: less that of `reference`. Where there are resamples, and samples enough,
    also `_low` and `_high`, paired.
    """
    labels, groups = predictions.labels, predictions.groups
    top = predictions.logits.argmax(dim=-1)
    rows: Rows = {}
    each = {
        name: predictions if name == NONE else Predictions(logits, labels, groups, by_network=True)
        for name, logits in found.items()
    }
    for name, of in each.items():
        rows[name] = metrics.measure(of.logits, labels, metrics.ESSENTIAL, bins, probs=of.probs)
        rows[name]["changed"] = int((of.logits.argmax(dim=-1) != top).sum())
    for row in rows.values():
        row |= {f"{metric}_less": row[metric] - rows[reference][metric] for metric in DECIDING}
    if not resamples or too_few(predictions):
        return rows
    draws = draws_for(predictions, resamples)
    with np.errstate(invalid="ignore"):  # an infinite NLL has no interval
        sides = {name: side_of(DECIDING, of, draws) for name, of in each.items()}
        for name in rows.keys() - {reference}:
            for metric in DECIDING:
                by = sides[name].less(sides[reference], metric, level)
                if math.isfinite(by.low) and math.isfinite(by.high):
                    rows[name] |= {f"{metric}_less_low": by.low, f"{metric}_less_high": by.high}
    return rows


def less_text(row: Mapping[str, float], metric: str) -> str:
    """`-0.012 [-0.020, -0.004]`: a row's metric less that of the reference."""
    by = row[f"{metric}_less"]
    if f"{metric}_less_low" not in row:
        return f"{by:+.4f}" if math.isfinite(by) else "-"
    return difference_text(Interval(by, row[f"{metric}_less_low"], row[f"{metric}_less_high"]))
