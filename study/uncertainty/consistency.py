"""Calibration errors of a perfectly calibrated model: the part that noise alone produces.

Consistency resampling (Broecker & Smith 2007, Increasing the Reliability of Reliability Diagrams):
the predictions are kept, each label is redrawn from its predicted probabilities. Where samples
belong to groups, whose labels are not independent, each group keeps its residuals and is given a
random sign: a calibrated model's are 0 in expectation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from study.uncertainty.resampling import BINS, SUMMED, Floats, Indices, SampleTerms, Sums, product

# Samples times draws processed at once.
CHUNK = 2**22


def calibrated_sums(table: SampleTerms, chances: Floats) -> Sums:
    """The binned sums of B draws; scores are 0, and regions are not counted.

    chances: `chances_of` the samples or groups.
    """
    if table.groups is not None:
        return _signed_sums(table, chances)
    return _drawn_sums(table, chances)


def _signed_sums(table: SampleTerms, signs: Floats) -> Sums:
    """The sums of each group's residuals, times signs [G, B]. Counts are those of the samples."""
    found = table.sums(signs)
    class_gaps = found.class_gaps
    if table.probs is not None:
        class_gaps = _varied(class_gaps, float((table.probs * (1 - table.probs)).sum()))
    expected = float((table.confidence * (1 - table.confidence)).sum())
    return replace(
        found,
        width_gaps=_varied(found.width_gaps, expected),
        mass_gaps=_varied(found.mass_gaps, expected),
        class_gaps=class_gaps,
        scores=np.zeros_like(found.scores),
        regions=found.regions[:0],
        width_counts=_counts(table.width),
        mass_counts=_counts(table.mass),
    )


def _varied(gaps: Floats, expected: float) -> Floats:
    """Signed gaps [bins, B] that vary, in all, at least as independent labels would make them.

    A bin in which the model expects few wrong labels, and which has none, has residuals that
    signs make too small.
    """
    found = float((gaps**2).sum(axis=0, dtype=np.float64).mean())
    scaled: Floats = gaps * gaps.dtype.type(max(1.0, expected / found) ** 0.5) if found else gaps
    return scaled


def _drawn_sums(table: SampleTerms, uniforms: Floats) -> Sums:
    """The binned sums with labels drawn by uniform numbers [N, B] in [0, 1)."""
    n, draws = uniforms.shape
    hits = (uniforms < table.confidence.astype(np.float32)[:, None]).astype(np.float32)
    one = np.ones(n)
    two = np.stack([table.width, table.mass + BINS], axis=1)
    width_hits, mass_hits = np.split(product(two, np.ones((n, 2)), hits, 2 * BINS), 2)
    class_gaps = np.empty((0, draws), np.float32)
    if table.probs is not None and table.cells is not None:
        order = np.argsort(-table.probs, axis=1, kind="stable")
        below = np.cumsum(np.take_along_axis(table.probs, order, 1), axis=1).astype(np.float32)
        ranked = np.take_along_axis(table.cells, order, 1)
        class_gaps = product(ranked[:, :1], np.ones((n, 1)), hits, BINS * table.classes)
        _add_misses(class_gaps, uniforms, below, ranked)
        expected = np.bincount(table.cells.ravel(), table.probs.ravel(), len(class_gaps))
        class_gaps -= expected[:, None]
    expected_smooth = table.smooth_gaps(table.confidence, one[:, None])
    return Sums(
        samples=n,
        classes=table.classes,
        scores=np.zeros((len(SUMMED), draws)),
        width_counts=_counts(table.width),
        width_gaps=width_hits - np.bincount(table.width, table.confidence, BINS)[:, None],
        mass_counts=_counts(table.mass),
        mass_gaps=mass_hits - np.bincount(table.mass, table.confidence, BINS)[:, None],
        mass_hits=mass_hits,
        class_gaps=class_gaps,
        regions=np.empty((0, draws)),
        smooth_gaps=table.smooth_gaps(one, hits) - expected_smooth,
    )


def _counts(index: Indices) -> Floats:
    """The number of samples in each bin, [BINS, 1]."""
    return np.bincount(index, minlength=BINS)[:, None].astype(float)


def _add_misses(total: Floats, uniforms: Floats, below: Floats, ranked: Indices) -> None:
    """Count in its cell each label that is not the most likely class; total: [cells, B].

    below, ranked: [N, K], cumulative probabilities and cells of a sample's classes, most likely
    first. Classes are visited in that order, each with the few samples still unassigned.
    """
    n, draws = uniforms.shape
    last = below.shape[1] - 1
    width = max(1, CHUNK // n)
    for start in range(0, draws, width):
        block = uniforms[:, start : start + width]
        sample, draw = np.divmod(np.flatnonzero(block >= below[:, :1]), block.shape[1])
        height = block[sample, draw]
        counted = np.zeros(len(total) * block.shape[1], np.int64)
        for rank in range(1, last + 1):
            here = (height < below[sample, rank]) | (rank == last)
            cell = ranked[sample[here], rank] * block.shape[1] + draw[here]
            counted += np.bincount(cell, minlength=len(counted))
            left = np.flatnonzero(~here)
            if not len(left):
                break
            sample = sample[left]
            draw = draw[left]
            height = height[left]
        total[:, start : start + width] += counted.reshape(len(total), -1)
