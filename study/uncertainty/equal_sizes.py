"""Calibration errors of a split at the size of a smaller one: their bias depends on the size.

Rows are drawn without replacement, whole groups where samples have them; the error is the mean over
the draws. docs/why/how-certain.md says where this is used.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from study.uncertainty.intervals import WITH_FLOOR
from study.uncertainty.resampling import (
    BINS,
    Floats,
    Indices,
    SampleTerms,
    Sums,
    known_groups,
    mass_starts,
)
from trainables.seeding import seed_of

DRAWS = 200
RESIZED = WITH_FLOOR  # smooth ECE would take too long here too
Rows = Indices | list[Indices]  # of each draw
BY_MASS = ("adaptive_ece", "debiased_l2")


def rows_drawn(samples: int, size: int, groups: ArrayLike | None = None) -> Rows:
    """The rows of each of DRAWS draws: the same for all networks, whenever it is called.

    groups: [N]. Then each draw takes the share of them that `size` is of the samples, and all their
    rows; else `size` rows.
    """
    source = np.random.default_rng(seed_of(0, "equal sizes"))
    known = known_groups(groups)
    if known is None:
        return np.stack([source.choice(samples, size, replace=False) for _ in range(DRAWS)])
    total = int(known.max()) + 1
    share = max(1, round(total * size / samples))
    chosen = (source.choice(total, share, replace=False) for _ in range(DRAWS))
    return [np.flatnonzero(np.isin(known, each)) for each in chosen]


def means_of_rows(
    logits: Floats, labels: Indices, rows: Rows, wanted: Collection[str]
) -> dict[str, float]:
    """The wanted calibration errors (of RESIZED), each the mean over the draws of `rows_drawn`.

    logits: [N, K], after a temperature where one is to be measured. Equal-mass bins are those of
    each draw.
    """
    table = SampleTerms.of(logits, labels, "classwise_ece" in wanted)
    counts = np.zeros((len(labels), len(rows)))
    for column, row in zip(counts.T, rows, strict=True):
        column[row] = 1.0
    sums = replace(table.sums(counts), samples=counts.sum(axis=0))
    if any(name in wanted for name in BY_MASS):
        sums = _with_own_edges(sums, table, rows)
    return {name: float(values.mean()) for name, values in sums.calibration(wanted).items()}


def _with_own_edges(sums: Sums, table: SampleTerms, rows: Rows) -> Sums:
    """The sums, with the equal-mass bins of each draw instead of those of the whole split."""
    confidence = table.confidence
    residual = table.hits - confidence
    counts, hits, gaps = np.zeros((3, BINS, len(rows)))
    for draw, row in enumerate(rows):
        own = confidence[row]
        index = np.searchsorted(mass_starts(own), own, side="right")
        counts[:, draw] = np.bincount(index, minlength=BINS)
        hits[:, draw] = np.bincount(index, table.hits[row], BINS)
        gaps[:, draw] = np.bincount(index, residual[row], BINS)
    return replace(sums, mass_counts=counts, mass_hits=hits, mass_gaps=gaps)
