"""Cross-fitted temperatures of every resample, and the sums of its predictions after them.

NLL over a grid of temperatures is computed once for each sample; that of a resample is its weighted sum. The fold of a
sample goes by its place in the original sample, so that copies of one never stand on both sides of a fit.
"""

from __future__ import annotations

import math

import numpy as np

from study.uncertainty.resampling import Floats, Indices, Sums, Table
from trainables.post_hoc import HIGHEST, LOWEST

FOLDS = 5
STEP = 1 / 16  # of the grid, in log T; a parabola through three points of it finds the minimum
# The predictions of a fold are computed anew for so many groups of resamples of nearly equal temperature.
GROUPS = 32


def temperatures(logits: Floats, labels: Indices, counts: Floats) -> Floats:
    """log T of least NLL on all folds but one, for each fold and resample, [FOLDS, B]. counts: [N, B].

    The grid grows, within [LOWEST, HIGHEST], until no resample has its minimum at an end.
    """
    behind = logits - np.take_along_axis(logits, labels[:, None], 1)
    least, most = math.ceil(math.log(LOWEST) / STEP), math.floor(math.log(HIGHEST) / STEP)
    points = list(range(-16, 17))
    curves = np.stack([_without_folds(behind, point, counts) for point in points])  # [points, FOLDS, B]
    while True:
        lowest = curves.argmin(axis=0)
        before = list(range(max(least, points[0] - 16), points[0])) if (lowest == 0).any() else []
        after = list(range(points[-1] + 1, min(most, points[-1] + 16) + 1)) if (lowest == len(points) - 1).any() else []
        if not before and not after:
            return STEP * (points[0] + lowest + _vertex(curves, lowest))
        parts = [np.stack([_without_folds(behind, p, counts) for p in new]) for new in (before, after) if new]
        curves = np.concatenate([*parts[: bool(before)], curves, *parts[bool(before) :]])
        points = [*before, *points, *after]


def _without_folds(behind: Floats, point: int, counts: Floats) -> Floats:
    """NLL at log T = STEP * point, summed over the samples outside each fold, [FOLDS, B].

    behind: [N, K], each logit less the label's.
    """
    scaled = behind * math.exp(-STEP * point)
    top = scaled.max(axis=1)
    nll = top + np.log(np.exp(scaled - top[:, None]).sum(axis=1))
    weighted = nll.astype(counts.dtype)
    own = np.stack([weighted[fold::FOLDS] @ counts[fold::FOLDS] for fold in range(FOLDS)])
    outside: Floats = own.sum(axis=0) - own
    return outside


def _vertex(curves: Floats, lowest: Indices) -> Floats:
    """Where the parabola through the lowest point and its neighbours has its minimum, in steps from that point."""
    inner = lowest.clip(1, len(curves) - 2)
    left, middle, right = (np.take_along_axis(curves, (inner + k)[None], 0)[0] for k in (-1, 0, 1))
    bend = left - 2 * middle + right
    shift = np.where(bend > 0, (left - right) / (2 * np.where(bend > 0, bend, 1)), 0)
    return np.where(inner == lowest, shift.clip(-1, 1), 0)


def sums_after(logits: Floats, labels: Indices, counts: Floats, starts: Floats, classwise: bool) -> Sums:
    """The sums of each resample after the temperatures fitted inside it. starts: of bins of equal mass, as in Table."""
    fitted = temperatures(logits, labels, counts)
    total: dict[str, Floats] = {}
    for fold, own in enumerate(fitted):
        part, names, weights = logits[fold::FOLDS], labels[fold::FOLDS], counts[fold::FOLDS]
        for group in np.array_split(np.argsort(own, kind="stable"), min(GROUPS, len(own))):
            scaled = part / math.exp(own[group].mean())
            sums = Table.of(scaled, names, classwise, starts).sums(weights[:, group])
            for name, values in sums.arrays().items():
                found = total.setdefault(name, np.zeros((len(values), counts.shape[1]), counts.dtype))
                found[:, group] += values
    return Sums(samples=len(logits), classes=logits.shape[1], **total)
