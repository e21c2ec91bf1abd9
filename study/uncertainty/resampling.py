"""Metrics of many resamples of one set of predictions at once, and of calibrated labels.

All are functions of sums over samples: of each sample's score; for calibration errors, of its
residual in its bin; for overlaps of regions, of samples by class. A sample enters few of these
sums, so one sparse product with the counts of all resamples gives every sum of every resample.
Equal-mass bins keep the edges of the whole sample.

Samples that belong together are drawn together: the terms of a group are added first, so that
groups enter the product. A resample's weights are scaled such that every sum is one of as many rows
as the sample has, and can be divided by their number.

Smooth ECE keeps the bandwidth of the whole sample. Other metrics (kernel errors, sweeps) are not
resampled.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from trainables import kinds
from trainables.groups import together
from trainables.metrics import describe, ours
from trainables.metrics.shared.parts import mass_ranks, slices

if TYPE_CHECKING:
    from study.uncertainty.smoothing import Smoothing
    from trainables.outputs.predictions import GivenProbs, Predictions

Floats = NDArray[np.floating]
Indices = NDArray[np.int64]

BINS = 15
# Means over samples, of the columns that `_Scored` has of each; and what follows from one.
SUMMED = ("accuracy", "top5_accuracy", "nll", "brier")
SCORES = ("accuracy", "error", *SUMMED[1:])
ERRORS = ("ece", "mce", "adaptive_ece", "classwise_ece", "debiased_l2", "smooth_ece")
OVERLAPS = {"miou": 0, "miou_without_0": 1}  # by metric: the first class of the mean
RESAMPLED = (*SCORES, *ERRORS, *OVERLAPS)
# Of resampled groups it would have to know how much their labels vary.
WITHOUT_GROUPS = ("debiased_l2",)
# What a temperature removes of a score: the difference of two of these sums.
REMOVED = {name: metric.removed_of for name, metric in ours().items() if metric.removed_of}
CALIBRATION = tuple(name for name in RESAMPLED if describe(name).kind == "calibration")


class Draws(NamedTuple):
    """A bootstrap's random numbers, drawn once for all trials and metrics.

    counts and chances are [N, B] float32 (8 N B bytes in all), or [G, B] where samples belong to
    groups.
    """

    counts: Floats  # how often each resample contains each sample, or each group
    chances: Floats  # decide what a calibrated model would have measured: see `chances_of`
    groups: Indices | None = None  # [N]; None: each sample is drawn by itself

    @classmethod
    def of(
        cls,
        samples: int,
        resamples: int,
        seed: int,
        groups: ArrayLike | None = None,
    ) -> Draws:
        """B resamples of N samples, or of the groups [N] of them, with replacement."""
        known = known_groups(groups)
        units = samples if known is None else int(known.max()) + 1
        indices = np.random.default_rng([seed, 0])
        counts = np.empty((units, resamples), np.float32)
        for column in counts.T:
            column[:] = np.bincount(indices.integers(units, size=units), minlength=units)
        return cls(counts, chances_of(samples, resamples, seed, known), known)

    @property
    def weights(self) -> Floats:
        """The counts, times N by the number of rows of the resample."""
        if self.groups is None:
            return self.counts
        rows = np.bincount(self.groups) @ self.counts.astype(np.float64)
        scaled: Floats = self.counts * (len(self.groups) / rows).astype(np.float32)
        return scaled


def chances_of(samples: int, resamples: int, seed: int, groups: ArrayLike | None = None) -> Floats:
    """The chances of `Draws.of`: what a calibrated model is drawn by.

    Uniform numbers [N, B] in [0, 1), which determine each sample's label; with groups, the sign
    [G, B] that each group's residuals take.
    """
    known = known_groups(groups)
    units = samples if known is None else int(known.max()) + 1
    uniforms = np.random.default_rng([seed, 1]).random((units, resamples), np.float32)
    if known is None:
        return uniforms
    return np.where(uniforms < 0.5, np.float32(1), np.float32(-1))


def known_groups(groups: ArrayLike | None) -> Indices | None:
    """The groups as an array; None where each has one sample."""
    return None if groups is None else together(np.asarray(groups))


def draws_for(predictions: Predictions, resamples: int) -> Draws:
    """The resamples of these predictions; the same for all with as many samples, or groups."""
    arrays = predictions.arrays
    return Draws.of(len(arrays.labels), resamples, 0, arrays.groups)


def too_few(predictions: Predictions, unit: str = "groups", samples: str = "samples") -> str:
    """Why there are no intervals, as `trainables.kinds.too_few` says it; empty if there are enough.

    unit: what groups are called; samples: what samples are.
    """
    arrays = predictions.arrays
    known = known_groups(arrays.groups)
    if known is None:
        return kinds.too_few(len(arrays.labels), samples)
    return kinds.too_few(int(known.max()) + 1, unit)


def differs(one: Predictions, other: Predictions) -> str | None:
    """What of the samples of the two is not the same, `labels` or `groups`."""
    if not np.array_equal(one.arrays.labels, other.arrays.labels):
        return "labels"
    first = known_groups(one.arrays.groups)
    second = known_groups(other.arrays.groups)
    if first is None or second is None:
        return None if first is second else "groups"
    return None if np.array_equal(first, second) else "groups"


def effective_groups(groups: Indices | None) -> float:
    """How many groups of one size would make a mean as certain as these [N]; infinite for None."""
    if groups is None:
        return math.inf
    sizes = np.bincount(groups).astype(float)
    return float(sizes.sum() ** 2 / (sizes @ sizes))


class InGroups(NamedTuple):
    """How many groups there are; of these, by fraction, how many have a row that counts for it, and
    how many one that counts against it."""

    total: int
    sides: dict[str, tuple[int, int]]
    effective: float  # see `effective_groups`

    @classmethod
    def of(cls, hits: Floats, within: Floats, groups: Indices) -> InGroups:
        """From whether each row is a hit, and its label among the top five, [N]."""
        sides = {}
        for name, rows in (("accuracy", hits), ("top5_accuracy", within)):
            speaks_for = len(np.unique(groups[rows > 0]))
            speaks_against = len(np.unique(groups[rows == 0]))
            sides[name] = speaks_for, speaks_against
        sides["error"] = sides["accuracy"][::-1]
        return cls(int(groups.max()) + 1, sides, effective_groups(groups))

    @property
    def wrong(self) -> int:
        """The groups with a wrong prediction."""
        return self.sides["error"][0]


@dataclass(frozen=True)
class Sums:
    """Sums over the samples of B resamples; binned ones are [bins, B]."""

    samples: int | Floats  # or the number of each resample, [B]
    classes: int
    scores: Floats  # [len(SUMMED), B]
    width_counts: Floats  # equal-width bins: samples, and hits minus confidence
    width_gaps: Floats
    mass_counts: Floats  # equal-mass bins: the same, and hits
    mass_gaps: Floats
    mass_hits: Floats  # no rows in resamples of groups: see WITHOUT_GROUPS
    class_gaps: Floats  # [classes * bins, B]; no rows unless classwise ECE is wanted
    # [3 * classes, B]: samples of the class that are predicted as it, all of the class, all that
    # are predicted as it; no rows unless an overlap is wanted.
    regions: Floats
    # [cells, B], the smoothed residual's integrals; no rows unless smooth ECE is wanted.
    smooth_gaps: Floats
    groups: InGroups | None = field(default=None, kw_only=True)  # of the sample itself, if any

    def arrays(self) -> dict[str, Floats]:
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in ("samples", "classes", "groups")
        }

    def metrics(self, wanted: Collection[str] = RESAMPLED) -> dict[str, Floats]:
        """The wanted metrics that are defined here, [B] each."""
        every = dict(zip(SUMMED, self.scores / self.samples, strict=True))
        every["error"] = 1 - every["accuracy"]
        if self.classes <= 5:
            del every["top5_accuracy"]
        found = {name: values for name, values in every.items() if name in wanted}
        return found | self.overlaps(wanted) | self.calibration(wanted)

    def overlaps(self, wanted: Collection[str] = tuple(OVERLAPS)) -> dict[str, Floats]:
        """The wanted overlaps, [B] each, if regions are counted: a class without a region is not in
        its resample's mean."""
        if not len(self.regions):
            return {}
        both, true, predicted = self.regions.reshape(3, self.classes, -1)
        either = true + predicted - both
        with np.errstate(invalid="ignore"):
            shares = both / either
            means = {
                name: np.nansum(shares[first:], axis=0) / np.sum(either[first:] > 0, axis=0)
                for name, first in OVERLAPS.items()
                if name in wanted
            }
        return {name: values for name, values in means.items() if not np.isnan(values).any()}

    def calibration(self, wanted: Collection[str] = CALIBRATION) -> dict[str, Floats]:
        """The wanted calibration errors that are defined here, [B] each."""
        names = [name for name in CALIBRATION if name in wanted and len(self.gaps(name))]
        if not len(self.mass_hits):
            names = [name for name in names if name not in WITHOUT_GROUPS]
        found = {name: self.calibration_error(name, self.gaps(name)) for name in names}
        return {name: values for name, values in found.items() if not np.isnan(values).any()}

    def gaps(self, metric: str) -> Floats:
        """Hits minus confidence in each bin of a calibration error, [bins, B]."""
        if metric == "classwise_ece":
            return self.class_gaps
        if metric == "smooth_ece":
            return self.smooth_gaps
        return self.width_gaps if metric in ("ece", "mce") else self.mass_gaps

    def calibration_error(self, metric: str, gaps: Floats, debias: bool = True) -> Floats:
        """The error that gaps [bins, B] give on these samples. Definitions: trainables.metrics.

        debias: for debiased_l2, whether the gaps are measured (their squares include noise) or
        true.
        """
        if metric == "mce":
            counts = np.where(self.width_counts > 0, self.width_counts, 1)
            return np.max(np.abs(gaps) / counts, axis=0)
        if metric == "debiased_l2":
            return self._debiased_l2(gaps, debias)
        if metric == "classwise_ece":
            return np.abs(gaps).sum(0) / (self.samples * self.classes)
        return np.abs(gaps).sum(0) / self.samples

    def _debiased_l2(self, gaps: Floats, debias: bool) -> Floats:
        counts = self.mass_counts
        some = counts > 1
        accuracy = self.mass_hits / np.maximum(counts, 1)
        square = (gaps / np.maximum(counts, 1)) ** 2
        if debias:
            square = square - accuracy * (1 - accuracy) / np.maximum(counts - 1, 1)
        total = np.where(some, counts, 0).sum(0)
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.maximum(np.where(some, counts * square, 0).sum(0), 0) / total)


@dataclass(frozen=True)
class SampleTerms:
    """Each sample's terms in the sums: N samples, K classes, of the logits to measure.

    Samples with groups are in order of these, whatever the order in which they were given. Or the
    table is of several parts with as many samples each, one after another, with groups of their
    own.
    """

    classes: int
    confidence: Floats  # [N]: the largest probability of each sample
    scores: Floats  # [N, len(SUMMED)]
    hits: Floats  # [N]
    width: Indices  # [N]: its equal-width bin
    mass: Indices  # [N]: its equal-mass bin
    labels: Indices  # [N]
    probs: Floats | None = None  # [N, K]; None unless classwise ECE is wanted
    cells: Indices | None = None  # of each of them: bin k of class c is k + BINS * c
    predicted: Indices | None = None  # [N]; None unless an overlap is wanted
    smoothing: Smoothing | None = None  # None unless smooth ECE is wanted
    groups: Indices | None = None  # [N]

    @classmethod
    def of(
        cls,
        logits: Floats,
        labels: Indices,
        classwise: bool = True,
        starts: Floats | None = None,
        smoothing: Smoothing | None = None,
        groups: Indices | None = None,
        overlaps: bool = False,
        given: GivenProbs | None = None,
        ties: bool = False,
    ) -> SampleTerms:
        """The table; equal-mass bins start at the confidences `starts`, by default their own.

        classwise, overlaps: whether classwise ECE, or an overlap, is wanted. given: the
        probabilities, where these were given and the logits are their logarithms. ties: whether
        they were given before a calibration, as in `Predictions.probs_after`.
        """
        order = None if groups is None else np.argsort(groups, kind="stable")
        if groups is not None:
            groups = groups[order]
            labels = labels[order]
        edges = np.arange(1, BINS) / BINS if given is None else given.edges(BINS)
        found = []
        for rows in slices(*logits.shape):
            taken = rows if order is None else order[rows]
            own: Floats | None = None
            if given is not None:
                own = given.values[taken].astype(np.float64)
            if ties:
                own = _softmax_of_ties(logits[taken])
            found.append(_Scored.of(logits[taken], labels[rows], own, keep=classwise))
        scored = _Scored(*(np.concatenate(each) for each in zip(*found, strict=True)))
        if starts is None:
            starts = mass_starts(scored.confidence)
        classes = np.arange(logits.shape[1])
        return cls(
            classes=len(classes),
            confidence=scored.confidence,
            scores=scored.scores,
            hits=scored.scores[:, 0],
            width=np.searchsorted(edges, scored.confidence),
            mass=np.searchsorted(starts, scored.confidence, side="right"),
            labels=labels,
            probs=scored.probs if classwise else None,
            cells=np.searchsorted(edges, scored.probs) + BINS * classes if classwise else None,
            predicted=scored.predicted if overlaps else None,
            smoothing=smoothing,
            groups=groups,
        )

    def total(self) -> Sums:
        """Sums over the samples themselves, one column, in float64."""
        if self.groups is None:
            return self._sums(np.ones((len(self.labels), 1)))
        hits, within = self.scores[:, :2].T
        known = InGroups.of(hits, within, self.groups)
        return replace(self._sums(np.ones((known.total, 1))), groups=known)

    def sums(self, counts: Floats, parts: int = 1) -> Sums:
        """Sums with each sample, or each group, counted by counts [N, B], in their precision.

        parts: of how many the table is; the sums of the first come first, [..., parts * B].
        """
        found = self._sums(counts, parts)
        if self.groups is None:
            return found
        return replace(found, mass_hits=found.mass_hits[:0])

    def _sums(self, counts: Floats, parts: int = 1) -> Sums:
        residual = self.hits - self.confidence
        one = np.ones_like(residual)
        means = len(SUMMED)
        width = means + self.width
        mass = means + 2 * BINS + self.mass
        rows = [np.broadcast_to(np.arange(means), self.scores.shape)]
        rows.append(np.stack([width, width + BINS, mass, mass + BINS, mass + 2 * BINS], axis=1))
        values = [self.scores, np.stack([one, residual, one, residual, self.hits], axis=1)]
        classes = self.classes
        height = means + 5 * BINS
        if self.cells is not None and self.probs is not None:
            rows.append(height + self.cells)
            values.append((np.arange(classes) == self.labels[:, None]) - self.probs)
            height += BINS * classes
        ends = [*(means + k * BINS for k in range(6)), height]
        if self.predicted is not None:
            region = [self.labels, classes + self.labels, 2 * classes + self.predicted]
            rows.append(height + np.stack(region, axis=1))
            values.append(np.stack([self.hits, one, one], axis=1))
            height += 3 * classes
        total = product(np.hstack(rows), np.hstack(values), counts, height, self.groups, parts)
        found = np.split(total, ends)
        found.append(self.smooth_gaps(residual, counts, parts))
        return Sums(len(self.labels) // parts, classes, *found)

    def smooth_gaps(self, residual: Floats, counts: Floats, parts: int = 1) -> Floats:
        """The cells of smooth ECE, [cells, B]: residuals [N], counted by counts as in `sums`."""
        if self.smoothing is None:
            return np.empty((0, parts * counts.shape[1]), counts.dtype)
        found = []
        for part, own in enumerate(np.split(counts, parts)):
            rows = slice(part * len(residual) // parts, (part + 1) * len(residual) // parts)
            groups = None if self.groups is None else self.groups[rows] - part * len(own)
            found.append(self.smoothing.gaps(self.confidence[rows], residual[rows], own, groups))
        return np.hstack(found)


class _Scored(NamedTuple):
    """What is computed sample by sample."""

    scores: Floats  # [N, len(SUMMED)]
    confidence: Floats  # [N]
    predicted: Indices  # [N]
    probs: Floats  # [N, K], or [N, 0] where they are not kept

    @classmethod
    def of(cls, logits: Floats, labels: Indices, given: Floats | None, keep: bool) -> _Scored:
        top = logits.max(axis=1, keepdims=True)
        own = np.take_along_axis(logits, labels[:, None], 1)
        odds = np.exp(logits - top)
        total = odds.sum(axis=1, keepdims=True)
        nll = (np.log(total) + top - own)[:, 0]
        probs = odds / total if given is None else given
        brier = (probs**2).sum(axis=1) - 2 * np.take_along_axis(probs, labels[:, None], 1)[:, 0] + 1
        ranked = logits if given is None else given
        own = np.take_along_axis(ranked, labels[:, None], 1)
        classes = np.arange(logits.shape[1])
        ahead = ((ranked > own) | ((ranked == own) & (classes < labels[:, None]))).sum(axis=1)
        columns = {"accuracy": ahead == 0, "top5_accuracy": ahead < 5, "nll": nll, "brier": brier}
        scores = np.stack([columns[name] for name in SUMMED], axis=1)
        kept = probs if keep else np.empty((len(probs), 0))
        return cls(scores, probs.max(axis=1), ranked.argmax(axis=1), kept)


def product(
    rows: Indices,
    values: Floats,
    counts: Floats,
    height: int,
    groups: Indices | None = None,
    parts: int = 1,
) -> Floats:
    """Sum over samples i and entries j of values[i, j] * counts[i], into rows[i, j] of [height, B].

    rows, values: [N, M]; counts: [N, B], or [G, B] of groups [N], which ascend. parts: as in
    `SampleTerms.sums`.
    """
    if parts > 1:
        rows = rows + height * np.repeat(np.arange(parts), len(rows) // parts)[:, None]
    starts = np.arange(len(rows) + 1)
    if groups is not None:
        starts = np.searchsorted(groups, np.arange(len(counts) + 1))
    precision = counts.dtype if groups is None else np.float64
    flat = values.astype(precision).ravel(), rows.astype(np.int32).ravel(), starts * rows.shape[1]
    matrix = sparse.csc_matrix(flat, shape=(parts * height, len(counts)))
    if groups is not None:
        # By rows its columns ascend, so that a group's entries for one sum are neighbours.
        matrix = matrix.tocsr()
        matrix.sum_duplicates()
        matrix = matrix.astype(counts.dtype)
    total: Floats = matrix @ counts
    return total if parts == 1 else np.hstack(np.split(total, parts))


def mass_starts(confidence: Floats) -> Floats:
    """The lowest confidence of each equal-mass bin after the first, [BINS - 1].

    An empty bin takes that of the next. Equal confidences go with the first of them.
    """
    ordered = np.append(np.sort(confidence), np.inf)
    ends = np.array(mass_ranks(len(confidence), BINS))
    first = np.searchsorted(ordered, ordered, side="left")
    starts: Floats = ordered[np.searchsorted(first, ends)]
    return starts


def _softmax_of_ties(logits: Floats) -> Floats:
    """As `metrics.scores.softmax_of_ties`: summed in order of size, so that ties are seen."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Floats = odds / np.sort(odds, axis=1).sum(axis=1, keepdims=True)
    return found
