"""Cross-fitted temperatures of every resample, and the sums of the temperature-scaled predictions.

The slope of each sample's NLL is computed once per temperature; a resample's is their weighted sum. All resamples share
the search: bisection over cells of log T, then one polynomial in each cell with a minimum. A sample's fold depends on
its position in the original sample, so that copies of it are never on both sides of a fit.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor

from study.uncertainty.resampling import Floats, Indices, Sums, Table
from trainables.post_hoc import FOLDS, HIGHEST, LOWEST, ahead_of_label, slope_and_curvature

CELLS = 32  # of log T, .36 wide
NODES = 10  # per cell: log T is exact to 1e-10, where 999 of 1,000 classes are equal to 1e-7
STEPS = 5  # of Newton's method, from the middle of a cell
# A fold's predictions are computed once per group of resamples with nearly equal temperature.
GROUPS = 32


def temperatures(logits: Floats, labels: Indices, counts: Floats) -> Floats:
    """log T that minimizes NLL on all folds but one, for each fold and resample, [FOLDS, B]. counts: [N, B].

    Equal to `post_hoc.fit_temperature` on the rows of the resample, with the same clamping.
    """
    ahead, weights = (
        ahead_of_label(torch.from_numpy(logits), torch.from_numpy(labels)),
        torch.from_numpy(counts),
    )

    def slopes(log_t: Floats, dtype: torch.dtype = weights.dtype) -> Tensor:
        """d NLL / d(1/T), summed over the samples outside each fold, [len(log_t), FOLDS, B]: falls with T."""
        each = torch.stack([slope_and_curvature(ahead, math.exp(at))[0] for at in log_t]).to(dtype)
        # torch's products stay on one thread (`in_threads`); NumPy's would compete for cores.
        own = torch.stack(
            [each[:, k::FOLDS] @ weights[k::FOLDS].to(dtype) for k in range(FOLDS)], dim=1
        )
        return own.sum(dim=1, keepdim=True) - own

    edges = np.linspace(math.log(LOWEST), math.log(HIGHEST), CELLS + 1)
    cell = np.zeros((FOLDS, counts.shape[1]), np.int64)
    width = CELLS
    while width := width // 2:
        for start in np.unique(cell):
            right = slopes(edges[[start + width]])[0].numpy() > 0
            cell += np.where((cell == start) & right, width, 0)
    nodes, half = chebyshev.chebpts1(NODES), (edges[1] - edges[0]) / 2
    series_of = torch.from_numpy(np.linalg.inv(chebyshev.chebvander(nodes, NODES - 1)))
    found = np.empty(cell.shape)
    for number in np.unique(cell):
        middle, here = edges[number] + half, cell == number
        values = slopes(middle + half * nodes, torch.float64)[:, torch.from_numpy(here)]
        found[here] = middle + half * _root((series_of @ values).numpy())
    for at, end in ((0, edges[:1]), (CELLS - 1, edges[-1:])):  # where no finite temperature is best
        if (cell == at).any():
            found = np.where((cell == at) & ((slopes(end)[0].numpy() > 0) == (at > 0)), end, found)
    return found


def _root(series: Floats) -> Floats:
    """Roots in [-1, 1] of decreasing Chebyshev series [M, n], by Newton's method within a bracket."""
    derivative = chebyshev.chebder(series)
    low, high = (
        np.full((2, series.shape[1]), [[-1.0], [1.0]]) * 1.01
    )  # the cell was found in float32
    x = np.zeros_like(low)
    for _ in range(STEPS):
        value = chebyshev.chebval(x, series, tensor=False)
        low, high = np.where(value > 0, x, low), np.where(value > 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = x - value / chebyshev.chebval(x, derivative, tensor=False)
        x = np.where((low <= newton) & (newton <= high), newton, (low + high) / 2)
    return x


def sums_after(
    logits: Floats, labels: Indices, counts: Floats, starts: Floats, classwise: bool
) -> Sums:
    """The sums of each resample after temperature scaling fitted inside it. starts: of equal-mass bins, as in Table."""
    fitted = temperatures(logits, labels, counts)
    total: dict[str, Floats] = {}
    for fold, own in enumerate(fitted):
        part, names, weights = logits[fold::FOLDS], labels[fold::FOLDS], counts[fold::FOLDS]
        for group in np.array_split(np.argsort(own, kind="stable"), min(GROUPS, len(own))):
            scaled = part / math.exp(own[group].mean())
            sums = Table.of(scaled, names, classwise, starts).sums(weights[:, group])
            for name, values in sums.arrays().items():
                found = total.setdefault(
                    name, np.zeros((len(values), counts.shape[1]), counts.dtype)
                )
                found[:, group] += values
    return Sums(samples=len(logits), classes=logits.shape[1], **total)
