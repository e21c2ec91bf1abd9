"""Smooth ECE of many resamples at one bandwidth, as sums over samples like those of bins.

At a bandwidth, the smoothed residual is a sum over samples (trainables.metrics.smooth: a cosine
series), and so is its integral over each of the CELLS of [0, 1]: the cells are to smooth ECE what
bins are to ECE. The bandwidth is that of the whole split, in which it equals the error; a resample
at its own would cost a root search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

# A cell in which the smoothed residual changes sign loses at most the square of its width.
CELLS = 512
# A mode k with pi k times the bandwidth above this vanishes in float32.
CUTOFF = 5.6
# Samples of groups whose modes are added at a time: what a processor's cache holds.
CHUNK = 2**14
# A split that is calibrated to less is smoothed at this bandwidth.
LEAST = 0.001


@dataclass(frozen=True)
class Smoothing:
    """The Gaussian reflected at 0 and 1, of a width that is one for all resamples."""

    bandwidth: float

    @classmethod
    def of(cls, confidence: Floats, hits: Floats) -> Smoothing:
        """The smoothing at the bandwidth of these samples. confidence, hits: [N]."""
        import torch  # slow: only smooth ECE needs it, whose definition is for training too

        from trainables.metrics.smooth import fixed_point

        residual = torch.from_numpy(hits - confidence)
        return cls(max(LEAST, float(fixed_point(torch.from_numpy(confidence), residual))))

    def gaps(
        self,
        confidence: Floats,
        residual: Floats,
        counts: Floats,
        groups: NDArray[np.int64] | None = None,
    ) -> Floats:
        """The integral over each cell of the smoothed residuals, summed over samples: [CELLS, B].

        confidence, residual: [N]; counts: [N, B], in whose precision it is, or [G, B] of groups
        [N], which ascend.
        """
        if groups is None:
            each: Floats = self._modes(confidence) * residual
        else:
            each = self._modes_of_groups(confidence, residual, groups, len(counts))
        precision = counts.dtype
        found: Floats = self._cells.astype(precision) @ (each.astype(precision) @ counts)
        return found

    def _modes_of_groups(
        self, confidence: Floats, residual: Floats, groups: NDArray[np.int64], count: int
    ) -> Floats:
        """The sum over the samples of each group of its modes times the residual, [modes, G].

        The recurrence of `_modes`, of which two terms are held, of some samples at a time.
        """
        found = np.zeros((len(self._numbers) + 1, count))
        for start in range(0, len(groups), CHUNK):
            chunk = slice(start, start + CHUNK)
            own, firsts = np.unique(groups[chunk], return_index=True)
            first = np.cos(math.pi * confidence[chunk].astype(np.float64))
            before = residual[chunk].astype(np.float64)
            here = before * first
            found[0, own] += np.add.reduceat(before, firsts)
            twice = 2 * first
            for modes in found[1:]:
                modes[own] += np.add.reduceat(here, firsts)
                np.subtract(twice * here, before, out=before)
                before, here = here, before
        return found

    @cached_property
    def _numbers(self) -> Floats:
        """pi k of each mode after the mean."""
        last = math.ceil(CUTOFF / (math.pi * self.bandwidth))
        return math.pi * np.arange(1.0, last + 1)

    def _modes(self, confidence: Floats) -> Floats:
        """cos(pi k c) of each sample, [modes, N], by recurrence: the modes are neighbours."""
        first = np.cos(math.pi * confidence.astype(np.float64))
        found = np.ones((len(self._numbers) + 1, len(first)))
        found[1] = first
        twice = 2 * first
        for k in range(2, len(found)):
            np.multiply(found[k - 1], twice, out=found[k])
            found[k] -= found[k - 2]
        return found

    @cached_property
    def _cells(self) -> Floats:
        """The integral over each cell of a unit of each mode, [CELLS, modes]."""
        edges = np.linspace(0, 1, CELLS + 1)[:, None]
        numbers = self._numbers
        damped = np.exp(-((numbers * self.bandwidth) ** 2) / 2)
        series = np.diff(2 * damped * np.sin(edges * numbers) / numbers, axis=0)
        return np.hstack([np.full((CELLS, 1), 1 / CELLS), series])
