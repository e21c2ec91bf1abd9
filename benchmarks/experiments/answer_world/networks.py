"""Accuracy, ECE and NLL of many networks on many resamples at once, as trained and with
a cross-fitted temperature.

Column 0 of every array over resamples is the sample itself: exact. So are raw values. In a resample
with a temperature refitted inside it, NLL is its Taylor polynomial in log T around the fitted one,
of order three, and the gaps of bins are linear between temperatures STEP apart. The fit: the lowest
sum of NLL plus half the square of log T, a prior worth one sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.experiments.answer_world.world import BINS, Floats, width_bin
from study.uncertainty.resampling import Draws
from trainables.groups import FOLDS

RESAMPLES = 300
SPAN = 4.5  # standard errors of log T on either side that a resample's may lie
STEP = 0.03  # of log T, between which gaps are linear
RAW, TEMPERATURE = "raw", "temperature"
METRICS = ("accuracy", "ece", "nll")


def counts_of(samples: int, resamples: int = RESAMPLES) -> Floats:
    """[samples, 1 + resamples]: ones for the sample, then the project's draws."""
    return np.hstack([np.ones((samples, 1), np.float32), Draws.of(samples, resamples, 0).counts])


class Scores(NamedTuple):
    """What each sample contributes, each [M, N]."""

    hits: NDArray[np.bool_]
    confidence: Floats
    nll: Floats

    @classmethod
    def of(cls, logits: Floats, labels: NDArray[np.int64], log_t: Floats | None = None) -> Scores:
        """logits: [CLASSES, M, N]; log_t: that of each network and sample, or
        what broadcasts to it."""
        scaled = logits if log_t is None else logits * np.exp(-log_t).astype(np.float32)
        top = scaled.max(axis=0)
        own = scaled[labels, :, np.arange(len(labels))].T
        total = np.exp(scaled - top).sum(axis=0)
        return cls(own >= top, 1 / total, np.log(total) + top - own)

    def metrics(self, counts: Floats) -> Floats:
        """[M, METRICS, columns of counts]. counts: [N, ...]."""
        hits, nll = (each.astype(np.float32) @ counts for each in (self.hits, self.nll))
        gaps = np.abs(gap_sums(self.hits, self.confidence, counts)).sum(axis=1)
        found: Floats = np.stack([hits, gaps, nll], axis=1) / len(counts)
        return found


def gap_sums(hits: Floats, confidence: Floats, counts: Floats) -> Floats:
    """Hits minus confidence in each bin, [M, BINS, columns of counts]. hits, confidence: [M, N]."""
    networks, samples = confidence.shape
    rows = width_bin(confidence) + BINS * np.arange(networks, dtype=np.int32)[:, None]
    residual = (hits - confidence).astype(np.float32)
    starts = np.arange(samples + 1) * networks
    matrix = sparse.csc_matrix(
        (residual.T.ravel(), rows.T.ravel(), starts), shape=(networks * BINS, samples)
    )
    found: Floats = (matrix @ counts).reshape(networks, BINS, -1)
    return found


@dataclass(frozen=True)
class Networks:
    """logits: [CLASSES, M, N] float32. labels: [N]. counts: [N, 1 + B]."""

    logits: Floats
    labels: NDArray[np.int64]
    counts: Floats

    def some(self, chosen: Sequence[int]) -> Networks:
        return replace(self, logits=self.logits[:, list(chosen)])

    def metrics(self, served: str) -> Floats:
        """[M, METRICS, 1 + B]"""
        return self.as_trained if served == RAW else self.after_temperature

    @cached_property
    def as_trained(self) -> Floats:
        return self.raw.metrics(self.counts)

    @cached_property
    def at_one_temperature(self) -> Floats:
        """As cross-fitted on the sample: resamples without the noise of the
        fit, [M, METRICS, 1 + B]."""
        return self.cross_fitted.metrics(self.counts)

    @cached_property
    def after_temperature(self) -> Floats:
        """With temperatures refitted inside each resample, [M, METRICS, 1 + B]."""
        series = self._series(self.counts)
        moved = self._refitted(series)
        nll = self._terms[0] @ self.counts + _value(series, moved).sum(axis=0)
        gaps = np.abs(self._gaps(moved)).sum(axis=1)
        found = np.stack([self.as_trained[:, 0] * len(self.labels), gaps, nll], axis=1) / len(
            self.labels
        )
        found[..., 0] = self.cross_fitted.metrics(self.counts[:, :1])[..., 0]
        return found

    @cached_property
    def raw(self) -> Scores:
        return Scores.of(self.logits, self.labels)

    @cached_property
    def cross_fitted(self) -> Scores:
        log_t = np.empty(self.logits.shape[1:])
        for k, own in enumerate(self._refitted(self._series(self.counts[:, :1]))[..., 0]):
            log_t[:, k::FOLDS] = (self.log_t + own)[:, None]
        return Scores.of(self.logits, self.labels, log_t)

    @cached_property
    def log_t(self) -> Floats:
        """The fit on all samples, [M]: what `export` would apply."""
        some = max(1, len(self.labels) // 250)
        found = np.zeros(self.logits.shape[1])
        for every in (some, some, some, some, 1, 1):  # Newton's steps, most on some of the samples
            _, slope, curvature, _ = _terms(self.logits[..., ::every], self.labels[::every], found)
            step = (every * slope.sum(axis=1) + found) / (every * curvature.sum(axis=1) + 1)
            found = found - np.clip(step, -1, 1)
        return found

    @cached_property
    def _terms(self) -> Floats:
        """NLL of each sample at `log_t` and its derivatives, [4, M, N]."""
        return _terms(self.logits, self.labels, self.log_t)

    @cached_property
    def _half(self) -> Floats:
        """Half of the range of log T that resamples need, [M]."""
        _, slope, curvature, _ = self._terms
        found: Floats = SPAN * np.sqrt((slope**2).sum(axis=1)) / curvature.sum(axis=1).clip(1e-3)
        return found

    def _series(self, counts: Floats) -> Floats:
        """Polynomials of NLL less that at `log_t`, summed in each fold, [4, FOLDS, M,
        ...]. counts: [N, ...]."""
        terms = self._terms[1:].reshape(-1, len(self.labels))
        sums = np.stack([terms[:, k::FOLDS] @ counts[k::FOLDS] for k in range(FOLDS)])
        slope, curvature, third = np.moveaxis(sums.reshape(FOLDS, 3, len(self.log_t), -1), 1, 0)
        return np.stack([np.zeros_like(slope), slope, curvature / 2, third / 6])

    def _refitted(self, series: Floats) -> Floats:
        """log T less `log_t` where NLL outside a fold, plus the prior, is
        lowest, [FOLDS, M, ...]."""
        _, slope, curvature, third = series.sum(axis=1, keepdims=True) - series
        slope, curvature = slope + self.log_t[:, None], 2 * curvature + 1
        found = np.zeros_like(slope)
        for _ in range(4):
            value = slope + found * (curvature + 3 * third * found)
            found = found - value / np.maximum(curvature + 6 * third * found, curvature / 4)
            found = np.clip(found, -self._half[:, None], self._half[:, None])
        return found

    def _gaps(self, moved: Floats) -> Floats:
        """Gaps of each resample, [M, BINS, 1 + B]. moved: as `_refitted`."""
        count = 1 + int(np.ceil(2 * self._half.max() / STEP))
        total: Floats = np.zeros((moved.shape[1], BINS, moved.shape[2]), np.float32)
        steps = (moved / self._half[:, None] + 1) / 2 * (count - 1)
        for number, node in enumerate(np.linspace(-1, 1, count)):
            weight = np.maximum(0, 1 - np.abs(steps - number)).astype(np.float32)
            some = weight.any(axis=(0, 2))
            if some.any():
                log_t = (self.log_t[some] + self._half[some] * node)[:, None]
                scores = Scores.of(self.logits[:, some], self.labels, log_t)
                for k in range(FOLDS):
                    hits, confidence = scores.hits[:, k::FOLDS], scores.confidence[:, k::FOLDS]
                    total[some] += weight[k, some, None] * gap_sums(
                        hits, confidence, self.counts[k::FOLDS]
                    )
        return total


def _terms(logits: Floats, labels: NDArray[np.int64], log_t: Floats) -> Floats:
    """NLL of each sample and its first three derivatives in log T, [4, M, N]. log_t: [M].

    With logits less the label's, over T: minus their mean, variance + mean, and
    -(third cumulant + 3 variance + mean).
    """
    scaled = logits * np.exp(-log_t[:, None]).astype(np.float32)
    scaled -= scaled[labels, :, np.arange(len(labels))].T
    top = scaled.max(axis=0)
    odds = np.exp(scaled - top)
    total = odds.sum(axis=0)
    odds /= total
    moments = []
    for _ in range(3):
        odds *= scaled
        moments.append(odds.sum(axis=0))
    mean, square, cube = moments
    variance = square - mean**2
    third = cube - 3 * mean * square + 2 * mean**3
    found: Floats = np.stack(
        [np.log(total) + top, -mean, variance + mean, -(third + 3 * variance + mean)]
    )
    return found


def _value(series: Floats, at: Floats) -> Floats:
    total = np.zeros_like(at)
    for one in series[::-1]:
        total = total * at + one
    return total
