"""Metrics of many resamples of one set of predictions at once, and of many sets of calibrated labels.

All are functions of sums over samples: of each sample's score, or, for calibration errors, of its residual in its bin.
A sample enters few of these sums, so one sparse product with the counts of all resamples gives every sum of every
resample. Equal-mass bins keep the edges of the whole sample.

Other metrics (smooth ECE, whose bandwidth is a fixed point of each resample; kernel errors; sweeps) are not resampled.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from trainables.metrics import describe

Floats = NDArray[np.floating]
Indices = NDArray[np.int64]

BINS = 15
SCORES = ("accuracy", "error", "top5_accuracy", "nll", "brier")  # means over samples
RESAMPLED = (*SCORES, "ece", "mce", "adaptive_ece", "classwise_ece", "debiased_l2")
CALIBRATION = tuple(name for name in RESAMPLED if describe(name).kind == "calibration")


class Draws(NamedTuple):
    """A bootstrap's random numbers, drawn once for all trials and metrics; both [N, B] float32 (8 N B bytes in all)."""

    counts: Floats  # how often each resample contains each sample
    uniforms: Floats  # in [0, 1): determine the sample's label under a calibrated model

    @classmethod
    def of(cls, samples: int, resamples: int, seed: int) -> Draws:
        """B resamples of N samples, with replacement."""
        indices, uniforms = (np.random.default_rng([seed, part]) for part in range(2))
        counts = np.empty((samples, resamples), np.float32)
        for column in counts.T:
            column[:] = np.bincount(indices.integers(samples, size=samples), minlength=samples)
        return cls(counts, uniforms.random((samples, resamples), np.float32))


@dataclass(frozen=True)
class Sums:
    """Sums over the samples of B resamples; binned ones are [bins, B]."""

    samples: int
    classes: int
    scores: Floats  # [4, B]: hit, label among the top five, NLL, Brier
    width_counts: Floats  # equal-width bins: samples, and hits minus confidence
    width_gaps: Floats
    mass_counts: Floats  # equal-mass bins: the same, and hits
    mass_gaps: Floats
    mass_hits: Floats
    class_gaps: Floats  # [classes * bins, B]; no rows unless classwise ECE is wanted

    def arrays(self) -> dict[str, Floats]:
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in ("samples", "classes")
        }

    def metrics(self, wanted: Collection[str] = RESAMPLED) -> dict[str, Floats]:
        """The wanted metrics that are defined here, [B] each."""
        accuracy, top5, nll, brier = self.scores / self.samples
        found = {"accuracy": accuracy, "error": 1 - accuracy, "nll": nll, "brier": brier}
        if self.classes > 5:
            found["top5_accuracy"] = top5
        return {
            name: values for name, values in found.items() if name in wanted
        } | self.calibration(wanted)

    def calibration(self, wanted: Collection[str] = CALIBRATION) -> dict[str, Floats]:
        """The wanted calibration errors that are defined here, [B] each."""
        names = [name for name in CALIBRATION if name in wanted and len(self.gaps(name))]
        found = {name: self.calibration_error(name, self.gaps(name)) for name in names}
        return {name: values for name, values in found.items() if not np.isnan(values).any()}

    def gaps(self, metric: str) -> Floats:
        """Hits minus confidence in each bin of a calibration error, [bins, B]."""
        if metric == "classwise_ece":
            return self.class_gaps
        return self.width_gaps if metric in ("ece", "mce") else self.mass_gaps

    def calibration_error(self, metric: str, gaps: Floats, debias: bool = True) -> Floats:
        """The error that gaps [bins, B] give on these samples. Definitions: trainables.metrics.

        debias: for debiased_l2, whether the gaps are measured (their squares include noise) or true.
        """
        if metric == "mce":
            return np.max(np.abs(gaps) / np.maximum(self.width_counts, 1), axis=0)
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
class Table:
    """What each sample contributes to which sums. N samples, K classes, of the logits to measure."""

    probs: Floats  # [N, K]
    scores: Floats  # [N, 4]
    hits: Floats  # [N]
    width: Indices  # [N]: its equal-width bin
    mass: Indices  # [N]: its equal-mass bin
    labels: Indices  # [N]
    cells: (
        Indices | None
    )  # [N, K]: bin k of class c is k + BINS * c; None unless classwise ECE is wanted

    @classmethod
    def of(
        cls, logits: Floats, labels: Indices, classwise: bool = True, starts: Floats | None = None
    ) -> Table:
        """starts: confidences at which the equal-mass bins start; default: those of these samples."""
        top, own = logits.max(axis=1, keepdims=True), np.take_along_axis(logits, labels[:, None], 1)
        odds = np.exp(logits - top)
        total = odds.sum(axis=1, keepdims=True)
        probs = odds / total
        confidence = probs.max(axis=1)
        classes = np.arange(logits.shape[1])
        ahead = ((logits > own) | ((logits == own) & (classes < labels[:, None]))).sum(axis=1)
        nll = (np.log(total) + top - own)[:, 0]
        brier = (probs**2).sum(axis=1) - 2 * np.take_along_axis(probs, labels[:, None], 1)[:, 0] + 1
        mass = np.searchsorted(
            mass_starts(confidence) if starts is None else starts, confidence, side="right"
        )
        cells = _width_index(probs) + BINS * classes if classwise else None
        scores = np.stack([ahead == 0, ahead < 5, nll, brier], axis=1)
        return cls(probs, scores, scores[:, 0], _width_index(confidence), mass, labels, cells)

    @property
    def confidence(self) -> Floats:
        """[N]"""
        found: Floats = self.probs.max(axis=1)
        return found

    def total(self) -> Sums:
        """Sums over the samples themselves, one column, in float64."""
        return self.sums(np.ones((len(self.labels), 1)))

    def sums(self, counts: Floats) -> Sums:
        """Sums with each sample counted as given by counts [N, B]; in the precision of the counts."""
        residual = self.hits - self.confidence
        one = np.ones_like(residual)
        width, mass = 4 + self.width, 4 + 2 * BINS + self.mass
        rows = [np.broadcast_to(np.arange(4), self.scores.shape)]
        rows.append(np.stack([width, width + BINS, mass, mass + BINS, mass + 2 * BINS], axis=1))
        values = [self.scores, np.stack([one, residual, one, residual, self.hits], axis=1)]
        classes = self.probs.shape[1]
        if self.cells is not None:
            rows.append(4 + 5 * BINS + self.cells)
            values.append((np.arange(classes) == self.labels[:, None]) - self.probs)
        height = 4 + 5 * BINS + (0 if self.cells is None else BINS * classes)
        total = product(np.hstack(rows), np.hstack(values), counts, height)
        return Sums(len(self.labels), classes, *np.split(total, [4 + k * BINS for k in range(6)]))


def product(rows: Indices, values: Floats, counts: Floats, height: int) -> Floats:
    """Sum over samples i and entries j of values[i, j] * counts[i], into rows[i, j] of [height, B].

    rows, values: [N, M]; counts: [N, B].
    """
    starts = np.arange(len(rows) + 1) * rows.shape[1]
    flat = values.astype(counts.dtype).ravel(), rows.astype(np.int32).ravel(), starts
    total: Floats = sparse.csc_matrix(flat, shape=(height, len(rows))) @ counts
    return total


def mass_starts(confidence: Floats) -> Floats:
    """The lowest confidence of each equal-mass bin after the first, [BINS - 1]; an empty bin takes that of the next.

    The bins of trainables.metrics.binned: sizes of array_split, equal confidences go with the first of them.
    """
    ordered = np.append(np.sort(confidence), np.inf)
    n = len(confidence)
    ends = np.array([k * (n // BINS) + min(k, n % BINS) for k in range(1, BINS)])
    first = np.searchsorted(ordered, ordered, side="left")
    starts: Floats = ordered[np.searchsorted(first, ends)]
    return starts


def _width_index(values: Floats) -> Indices:
    """The index of each value's equal-width bin (lo, hi]."""
    return np.searchsorted(np.arange(1, BINS) / BINS, values, side="left")
