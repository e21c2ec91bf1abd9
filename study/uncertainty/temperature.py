"""Cross-fitted temperatures of every resample, and the sums of its predictions after them.

The slope of each sample's NLL is computed once at a temperature; that of a resample is its weighted sum. All resamples
look in the same places: in cells of log T by halves, then by one polynomial in each cell that holds a minimum. The fold
of a sample goes by its place in the original sample, so that copies of one never stand on both sides of a fit.
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
NODES = 10  # in a cell: log T comes out to 1e-10, where 999 of 1,000 classes are equal to 1e-7
STEPS = 5  # of Newton's method, from the middle of a cell
# The predictions of a fold are computed anew for so many groups of resamples of nearly equal temperature.
GROUPS = 32


def temperatures(logits: Floats, labels: Indices, counts: Floats) -> Floats:
    """log T of least NLL on all folds but one, for each fold and resample, [FOLDS, B]. counts: [N, B].

    Those of `post_hoc.fit_temperature` on the rows of the resample, and clamped as they are.
    """
    ahead, weights = ahead_of_label(torch.from_numpy(logits), torch.from_numpy(labels)), torch.from_numpy(counts)

    def slopes(log_t: Floats, dtype: torch.dtype = weights.dtype) -> Tensor:
        """d NLL / d(1/T), summed over the samples outside each fold, [len(log_t), FOLDS, B]: falls with T."""
        each = torch.stack([slope_and_curvature(ahead, math.exp(at))[0] for at in log_t]).to(dtype)
        # torch's products keep to one thread beside others (`in_threads`); NumPy's would get in each other's way.
        own = torch.stack([each[:, k::FOLDS] @ weights[k::FOLDS].to(dtype) for k in range(FOLDS)], dim=1)
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
    """Where falling Chebyshev series [M, n] are 0 in [-1, 1], by Newton's method within a bracket."""
    derivative = chebyshev.chebder(series)
    low, high = np.full((2, series.shape[1]), [[-1.0], [1.0]]) * 1.01  # which cell was found in float32
    x = np.zeros_like(low)
    for _ in range(STEPS):
        value = chebyshev.chebval(x, series, tensor=False)
        low, high = np.where(value > 0, x, low), np.where(value > 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = x - value / chebyshev.chebval(x, derivative, tensor=False)
        x = np.where((low <= newton) & (newton <= high), newton, (low + high) / 2)
    return x


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
