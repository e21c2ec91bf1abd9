"""Cross-fitted temperatures of every resample, and the sums of the temperature-scaled predictions.

The slope of each sample's NLL is computed once per temperature; a resample's is their weighted sum.
All resamples share the search: outwards from T = 1 over cells of log T, then one polynomial in each
cell with a minimum. A sample's fold depends on its position in the original sample, or that of its
group, so that copies of it are never on both sides of a fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from study.uncertainty.resampling import Draws, Floats, Indices, SampleTerms, Sums
from study.uncertainty.smoothing import Smoothing
from trainables.groups import FOLDS
from trainables.metrics.shared.cells import ABOVE, BELOW, WIDTH
from trainables.outputs.predictions import Arrays

NODES = 10  # per cell: log T is exact to 1e-10, where 999 of 1,000 classes are equal to 1e-7
STEPS = 8  # of Newton's method, from the middle of a cell
# A fold's predictions are computed once for each part of the resamples, whose log T differ by this
# at most; there are no more than so many parts.
SPAN = 0.01
ALIKE = 32
CHUNK = 2**15  # values
VALUES = 2**18  # of the parts that are measured at once
_NODES = chebyshev.chebpts1(NODES)
_SERIES_OF = np.linalg.inv(chebyshev.chebvander(_NODES, NODES - 1))


def temperature_of(arrays: Arrays) -> float:
    """The temperature fitted to all samples, as `post_hoc.fit_temperature`."""
    once = np.ones((len(arrays.labels), 1))
    return math.exp(temperatures(arrays.logits, arrays.labels, once, folds=1)[0, 0])


def fold_temperatures(arrays: Arrays) -> Floats:
    """[folds]: of each fold the temperature of the others, as `post_hoc.fold_fits`; none of fewer
    than two samples or groups."""
    logits = arrays.logits.astype(np.float64, copy=False)
    groups = arrays.groups
    units = len(logits) if groups is None else int(groups.max()) + 1
    if (folds := min(FOLDS, units)) < 2:
        return np.empty(0)
    found = temperatures(logits, arrays.labels, np.ones((units, 1)), groups, folds)
    fitted: Floats = np.exp(found)[:, 0]
    return fitted


def cross_fitted(arrays: Arrays, fitted: Floats | None = None) -> Floats:
    """The logits [N, K], each fold's at the temperature of the others: `post_hoc.cross_fitted`.

    fitted: what `fold_temperatures` gave.
    """
    logits = arrays.logits.astype(np.float64)
    fitted = fold_temperatures(arrays) if fitted is None else fitted
    if len(fitted):
        own = np.arange(len(logits)) if arrays.groups is None else arrays.groups
        logits /= fitted[own % len(fitted), None]
    return logits


def temperatures(
    logits: Floats,
    labels: Indices,
    counts: Floats,
    groups: Indices | None = None,
    folds: int = FOLDS,
) -> Floats:
    """log T of the fit on all folds but one, for each fold and resample, [folds, B].

    counts: [N, B], or [G, B] of groups [N]. folds: 1: the fit on all. Equal to
    `post_hoc.fit_temperature` on the rows of the resample, with the same clamping. Of several
    minima, the lowest.
    """
    fits = _Fits(logits, labels, counts, groups, folds)
    edges = _edges(fits)
    minima: list[_Minima] = []
    for cell in sorted(edges)[:-1]:
        minima += _in_cell(fits, cell, edges[cell], edges[cell + 1])
    minima += _at_ends(edges)
    place = np.concatenate([one.place for one in minima])
    log_t = np.concatenate([one.log_t for one in minima])
    found = np.empty(folds * counts.shape[1])
    if len(place) > len(found):
        costs = np.concatenate([fits.costs(one) for one in minima])
        dearest_first = np.argsort(-costs, kind="stable")
        place = place[dearest_first]
        log_t = log_t[dearest_first]
    found[place] = log_t  # of several for one place, the last is kept
    return found.reshape(folds, -1)


class _Edge(NamedTuple):
    """How much the cost falls with log T at an edge of cells, [FOLDS, B], and its derivative."""

    falls: Floats
    bends: Floats | None  # where there can be several minima


class _Minima(NamedTuple):
    """Minima in one cell, [M] each."""

    cell: int  # it begins so many cells above T = 1
    place: Indices  # number of the fold and resample
    log_t: Floats
    gained: Floats  # how much lower the cost is than where the cell begins


class _Fits:
    """The cost to be minimized, for each fold and resample.

    The sum of NLL over the samples outside the fold, with a prior plus (log T)^2 / 2.
    """

    def __init__(
        self,
        logits: Floats,
        labels: Indices,
        counts: Floats,
        groups: Indices | None,
        folds: int,
    ) -> None:
        self._starts = None
        if groups is not None:
            order = np.argsort(groups, kind="stable")
            logits = logits[order]
            labels = labels[order]
            self._starts = np.searchsorted(groups[order], np.arange(len(counts)))
        self._ahead = ahead_of_label(logits, labels)
        self._counts = counts
        self._folds = folds

    def _outside(
        self,
        each: Floats,
        columns: np.ndarray | None = None,
        precision: type[np.floating] | np.dtype[np.floating] = np.float64,
    ) -> Floats:
        """Sums over the samples outside each fold.

        each: [n, N]; [n, folds, B], or of these resamples only.
        """
        if self._starts is not None:
            each = np.add.reduceat(each, self._starts, axis=1)
        each = each.astype(precision, copy=False)
        own = []
        for k in range(self._folds):
            counts = self._counts[k :: self._folds]
            if columns is not None:
                counts = counts[:, columns]
            own.append(each[:, k :: self._folds] @ counts.astype(precision, copy=False))
        found = np.stack(own, axis=1)
        return found if self._folds == 1 else found.sum(axis=1, keepdims=True) - found

    def edge(self, number: int) -> _Edge:
        """The edge of that number, in float32: its signs decide which cell may have a minimum."""
        log_t = number * WIDTH
        slope, curvature = slope_and_curvature(self._ahead, math.exp(log_t))
        slope = slope * math.exp(-log_t)
        curvature = curvature * math.exp(-log_t * 2)
        bends = number <= 0
        each = [slope]
        if bends:
            each.append(-slope - curvature)
        found = self._outside(np.stack(each), precision=self._counts.dtype)
        return _Edge(found[0] - log_t, found[1] - 1 if bends else None)

    def series(self, cell: int, here: np.ndarray) -> Floats:
        """Chebyshev series [NODES, M] of how the cost falls in the cell, at the places `here`."""
        log_t = (cell + (1 + _NODES) / 2) * WIDTH
        columns = np.flatnonzero(here.any(axis=0))
        each = np.stack(
            [slope_and_curvature(self._ahead, math.exp(at))[0] * math.exp(-at) for at in log_t]
        )
        values = self._outside(each, columns if len(columns) < here.shape[1] else None)
        values = values[:, here[:, columns]] - log_t[:, None]
        return np.asarray(_SERIES_OF @ values)

    def costs(self, minima: _Minima) -> Floats:
        """The cost at each minimum."""
        log_t = minima.cell * WIDTH
        each = nlls(self._ahead, math.exp(log_t))[None]
        columns, index = np.unique(minima.place % self._counts.shape[1], return_inverse=True)
        found = self._outside(each, columns)[0, minima.place // self._counts.shape[1], index]
        return found + log_t**2 / 2 - minima.gained

    def dearest(self) -> float:
        """The largest cost at T = 1."""
        each = nlls(self._ahead, 1.0)[None]
        return float(self._outside(each, precision=self._counts.dtype).max())


def ahead_of_label(logits: Floats, labels: Indices) -> Floats:
    """As `post_hoc.ahead_of_label`, [K, N] float64."""
    found = np.array(logits.T, np.float64, order="C")
    own = np.take_along_axis(found, labels[None], 0)
    with np.errstate(invalid="ignore"):  # -inf less itself
        found -= own
    found[:, own[0] == -np.inf] = 0.0
    return np.maximum(found, -1e300, out=found)


def slope_and_curvature(ahead: Floats, temperature: float) -> tuple[Floats, Floats]:
    """As `post_hoc.slope_and_curvature`, [N] each."""
    means = np.empty(ahead.shape[1])
    variances = np.empty_like(means)
    for rows, part in _chunks(ahead):
        odds, total = _odds(part, temperature)
        odds /= total
        odds *= part
        means[rows] = odds.sum(axis=0)
        odds *= part
        variances[rows] = odds.sum(axis=0) - means[rows] ** 2
    return means, variances


def nlls(ahead: Floats, temperature: float) -> Floats:
    """As `post_hoc.nlls`, [N]."""
    found = np.empty(ahead.shape[1])
    for rows, part in _chunks(ahead):
        _, total = _odds(part, temperature)
        found[rows] = np.log(total) + part.max(axis=0) / temperature
    return found


def _chunks(ahead: Floats) -> Iterator[tuple[slice, Floats]]:
    """Some samples at a time of [K, N]: what a processor's cache holds."""
    size = max(64, CHUNK // len(ahead))
    for start in range(0, ahead.shape[1], size):
        rows = slice(start, start + size)
        yield rows, ahead[:, rows]


def _odds(part: Floats, temperature: float) -> tuple[Floats, Floats]:
    """exp of the scaled logits less their largest, [K, n], and its sum, [n]."""
    scaled = part / temperature
    scaled -= scaled.max(axis=0)
    np.exp(scaled, out=scaled)
    return scaled, scaled.sum(axis=0)


def _edges(fits: _Fits) -> dict[int, _Edge]:
    """The edges by number, from below the lowest minimum to above the highest: see `post_hoc`."""
    found = {0: fits.edge(0)}
    top = 0
    bottom = 0
    reach = math.inf
    while top < ABOVE and (found[top].falls > 0).any():
        top += 1
        found[top] = fits.edge(top)
    while bottom > -BELOW:
        nll_falls = found[bottom].falls + bottom * WIDTH
        if bottom == -4:
            reach = math.sqrt(2 * fits.dearest())
        if not (nll_falls <= 0).any() or -bottom * WIDTH > reach:
            break
        bottom -= 1
        found[bottom] = fits.edge(bottom)
    return found


def _in_cell(fits: _Fits, cell: int, left: _Edge, right: _Edge) -> Iterator[_Minima]:
    """The minima in a cell, at most one for each fold and resample."""
    crosses = (left.falls > 0) & (right.falls <= 0)
    turns = np.zeros_like(crosses)
    sign = np.sign(left.falls)
    if left.bends is not None and right.bends is not None:
        # It comes nearer to 0 and leaves again: where it turns it may have crossed.
        turns = (left.falls * right.falls > 0) & (left.bends * sign < 0) & (right.bends * sign > 0)
    here = crosses | turns
    if not here.any():
        return
    series = fits.series(cell, here)
    at_turn = turns[here]
    # The cell was found in float32.
    low, high = np.full((2, series.shape[1]), [[-1.0], [1.0]]) * 1.01
    kept = ~at_turn
    if at_turn.any():
        assert left.bends is not None and right.bends is not None
        bend = left.bends[turns]
        turn = 2 * bend / (bend - right.bends[turns]) - 1
        kept[at_turn] = chebyshev.chebval(turn, series[:, at_turn], tensor=False) * sign[turns] < 0
        low[at_turn] = np.where(sign[turns] < 0, turn, -1)
        high[at_turn] = np.where(sign[turns] > 0, turn, 1)
    series = series[:, kept]
    at = _root(series, low[kept], high[kept])
    gained = WIDTH / 2 * chebyshev.chebval(at, chebyshev.chebint(series, lbnd=-1), tensor=False)
    yield _Minima(cell, np.flatnonzero(here)[kept], (cell + (1 + at) / 2) * WIDTH, gained)


def _at_ends(edges: dict[int, _Edge]) -> Iterator[_Minima]:
    """The minima at an end of the range, where the cost still falls towards it."""
    for number, lowest in ((-BELOW, True), (ABOVE, False)):
        if number in edges:
            falls = edges[number].falls
            place = np.flatnonzero(falls <= 0 if lowest else falls > 0)
            yield _Minima(number, place, np.full(len(place), number * WIDTH), np.zeros(len(place)))


def _root(series: Floats, low: Floats, high: Floats) -> Floats:
    """Roots of Chebyshev series [M, n] that fall from `low` to `high`: Newton's method in them."""
    derivative = chebyshev.chebder(series)
    x = (low + high) / 2
    for _ in range(STEPS):
        value = chebyshev.chebval(x, series, tensor=False)
        low = np.where(value > 0, x, low)
        high = np.where(value > 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = x - value / chebyshev.chebval(x, derivative, tensor=False)
        x = np.where((low <= newton) & (newton <= high), newton, (low + high) / 2)
    return x


def sums_after(
    logits: Floats,
    labels: Indices,
    draws: Draws,
    starts: Floats,
    classwise: bool,
    smoothing: Smoothing | None = None,
    overlaps: bool = False,
) -> Sums:
    """The sums of each resample, temperature fitted inside it.

    starts, classwise, smoothing, overlaps: as in SampleTerms.
    """
    fitted = temperatures(logits, labels, draws.counts, draws.groups)
    weights = draws.weights
    total: dict[str, Floats] = {}
    for fold, own in enumerate(fitted):
        rows, groups = _fold(fold, draws.groups)
        part = logits[rows]
        names = labels[rows]
        of_fold = weights[fold::FOLDS]
        parts = min(ALIKE, len(own), 1 + math.ceil(np.ptp(own) / SPAN))
        every = np.array_split(np.argsort(own, kind="stable"), parts)
        at_once = max(1, VALUES // part.size)
        for start in range(0, parts, at_once):
            alike = every[start : start + at_once]
            scaled = np.concatenate([part / math.exp(own[columns].mean()) for columns in alike])
            numbers = None
            if groups is not None:
                numbers = np.concatenate([groups + k * len(of_fold) for k in range(len(alike))])
            table = SampleTerms.of(
                scaled,
                np.tile(names, len(alike)),
                classwise,
                starts,
                smoothing,
                numbers,
                overlaps,
            )
            counts, kept = _side_by_side(of_fold, alike)
            for name, values in table.sums(counts, len(alike)).arrays().items():
                empty = np.zeros((len(values), weights.shape[1]), weights.dtype)
                total.setdefault(name, empty)[:, np.concatenate(alike)] += values[:, kept]
    return Sums(samples=len(logits), classes=logits.shape[1], groups=None, **total)


def _side_by_side(counts: Floats, alike: Sequence[Indices]) -> tuple[Floats, Indices]:
    """The counts [n, B] of each of the sets of columns, below each other, [sets * n, widest]; and
    which of [sets * widest] columns are theirs: a narrow one is filled up with zeros."""
    widest = max(map(len, alike))
    found = np.zeros((len(alike), len(counts), widest), counts.dtype)
    for one, columns in zip(found, alike, strict=True):
        one[:, : len(columns)] = counts[:, columns]
    kept = [k * widest + np.arange(len(columns)) for k, columns in enumerate(alike)]
    return found.reshape(-1, widest), np.concatenate(kept)


def _fold(fold: int, groups: Indices | None) -> tuple[slice | Indices, Indices | None]:
    """The rows of a fold, as `groups.folds_of` has them, and the numbers of their groups among its
    own."""
    if groups is None:
        return slice(fold, None, FOLDS), None
    rows = np.flatnonzero(groups % FOLDS == fold)
    return rows, groups[rows] // FOLDS
