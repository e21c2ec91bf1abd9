"""Populations whose metrics are known, from which experiments draw sets of samples.

Of logits, with labels by probabilities that are known: where the samples of a set belong to groups,
what decides between the labels is normal, with a part that the rows of a group share, and the
calibrated model stays calibrated. Of bins, with confidences and true gaps of so many standard
errors of a set, where no data can tell the gap from none.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import beta, norm

from study.uncertainty.resampling import BINS
from trainables.metrics import AFTER_TEMPERATURE
from trainables.metrics.smooth import error_at, fixed_point
from trainables.outputs.predictions import Predictions

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

CLASSES = 10
POOL = 200_000
# How far one class stands out: accuracy is about .90, or .69, where confidences lie in all
# bins and small ECEs drown.
LIFTS = {"sure": 14.0, "unsure": 6.0}
CORRELATION = 0.3  # of what decides the labels of two rows of a group
ALIKE = 0.8  # correlation of the confidences, and of the hits, of two models of bins


class Population(NamedTuple):
    """Logits [N, K] and the probabilities [N, K] by which their labels truly come."""

    logits: Floats
    truth: Floats

    def sample(self, size: int, source: np.random.Generator) -> tuple[Floats, Indices]:
        """Logits and labels of `size` samples."""
        chosen = source.integers(len(self.logits), size=size)
        return self.logits[chosen], drawn_labels(self.truth[chosen], source)

    def metrics(self) -> dict[str, float]:
        """Its own, from the definitions, with the expectation over labels for a label."""
        probs = softmax(self.logits)
        top = probs.argmax(axis=1)
        confidence, accuracy = (
            np.take_along_axis(p, top[:, None], 1)[:, 0] for p in (probs, self.truth)
        )
        rank = confidence.argsort().argsort()
        width = np.ceil(BINS * confidence).astype(int) - 1
        gaps = {
            "width": np.bincount(width, accuracy - confidence, BINS),
            "mass": np.bincount(rank * BINS // len(rank), accuracy - confidence, BINS),
        }
        # A probability that underflows to 0 belongs to the first bin.
        cells = (np.ceil(BINS * probs).astype(int) - 1).clip(min=0) + BINS * np.arange(
            probs.shape[1]
        )
        return {
            "accuracy": accuracy.mean(),
            "nll": self.nll(),
            "brier": (probs**2 - 2 * probs * self.truth).sum(axis=1).mean() + 1,
            "ece": np.abs(gaps["width"]).sum() / len(rank),
            "adaptive_ece": np.abs(gaps["mass"]).sum() / len(rank),
            "debiased_l2": np.sqrt((gaps["mass"] ** 2).sum() * BINS) / len(rank),
            "mce": np.max(np.abs(gaps["width"]) / np.bincount(width, minlength=BINS).clip(min=1)),
            "classwise_ece": (
                np.abs(np.bincount(cells.ravel(), (self.truth - probs).ravel())).sum() / probs.size
            ),
        }

    def smooth_ece(self, bandwidth: float | None = None) -> float:
        """At a bandwidth, or at the one that equals it."""
        probs = softmax(self.logits)
        top = probs.argmax(axis=1)
        confidence, accuracy = (
            np.take_along_axis(p, top[:, None], 1)[:, 0] for p in (probs, self.truth)
        )
        parts = torch.from_numpy(confidence), torch.from_numpy(accuracy - confidence)
        return float(fixed_point(*parts) if bandwidth is None else error_at(*parts, bandwidth))

    def nll(self) -> float:
        return float(-(self.truth * np.log(softmax(self.logits))).sum(axis=1).mean())

    def scaled(self, log_t: float) -> Population:
        return Population(self.logits / math.exp(log_t), self.truth)

    def best_log_t(self) -> float:
        """Of the temperature with the lowest NLL on the whole population."""
        return float(
            minimize_scalar(
                lambda log_t: self.scaled(log_t).nll(), bounds=(-1, 2), method="bounded"
            ).x
        )


def softmax(logits: Floats) -> Floats:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def drawn_labels(probs: Floats, source: np.random.Generator) -> Indices:
    return labels_at(probs, source.random(len(probs)))


def labels_at(probs: Floats, heights: Floats) -> Indices:
    """The class at which the probabilities [N, K], added up, reach the height [N]."""
    return (heights[:, None] > probs.cumsum(axis=1)).sum(axis=1).clip(max=probs.shape[1] - 1)


def evidence(lift: float, size: int, source: np.random.Generator, classes: int = CLASSES) -> Floats:
    """Logits of a calibrated classifier."""
    logits = source.normal(size=(size, classes)) * 2.0
    logits[np.arange(size), source.integers(classes, size=size)] += lift * np.sqrt(
        source.random(size)
    )
    return logits


def population(lift: float, error: float, size: int = POOL) -> Population:
    """One whose ECE is `error`: over-confident by the temperature that makes it so."""
    logits = evidence(lift, size, np.random.default_rng(0))
    if error == 0:
        return Population(logits, softmax(logits))
    low, high = 1.0, 4.0
    for _ in range(16):
        middle = (low + high) / 2
        found = Population(logits, softmax(logits / middle))
        low, high = (middle, high) if found.metrics()["ece"] < error else (low, middle)
    return found


# ---- worlds --------------------------------------------------------------------------------------


class World(Protocol):
    """Two models of the same samples."""

    @property
    def truths(self) -> list[dict[str, float]]:
        """The metrics of each in the population."""

    def drawn(self, size: int, groups: Indices | None, source: np.random.Generator) -> Pair:
        """What both predict for `size` samples, which belong to these groups [N]."""


Pair = list[Predictions]


@dataclass(frozen=True)
class Populations:
    """Two models with logits, whose labels come by the same probabilities."""

    models: tuple[Population, Population]

    @functools.cached_property
    def truths(self) -> list[dict[str, float]]:
        found = []
        for model in self.models:
            after = model.scaled(model.best_log_t()).metrics()
            scaled = {AFTER_TEMPERATURE + name: value for name, value in after.items()}
            found.append({**model.metrics(), "smooth_ece": model.smooth_ece(), **scaled})
        return found

    def drawn(self, size: int, groups: Indices | None, source: np.random.Generator) -> Pair:
        truth = self.models[0].truth
        chosen = source.integers(len(truth), size=size)
        if groups is None:
            labels = drawn_labels(truth[chosen], source)
        else:
            labels = labels_of_groups(truth[chosen], groups, source)
        known = torch.from_numpy(labels), None if groups is None else torch.from_numpy(groups)
        return [Predictions(torch.from_numpy(one.logits[chosen]), *known) for one in self.models]


def labels_of_groups(truth: Floats, groups: Indices, source: np.random.Generator) -> Indices:
    """Labels by the probabilities [N, K], those of a group likely, or unlikely, together."""
    shared = source.normal(size=groups.max() + 1)[groups]
    own = source.normal(size=len(groups))
    latent = math.sqrt(CORRELATION) * shared + math.sqrt(1 - CORRELATION) * own
    likely_first = np.argsort(-truth, axis=1)
    place = labels_at(np.take_along_axis(truth, likely_first, 1), norm.cdf(latent))
    return np.take_along_axis(likely_first, place[:, None], 1)[:, 0]


def too_sure(lift: float, size: int = POOL, classes: int = CLASSES) -> Populations:
    """A calibrated model, and one that sees the same evidence through noise and is too sure."""
    source = np.random.default_rng(0)
    base = evidence(lift, size, source, classes)
    truth = softmax(base)
    noisier = base + 0.6 * source.normal(size=base.shape)
    return Populations((Population(base, truth), Population(1.2 * noisier, truth)))


def at_temperatures(lift: float, one: float, other: float, size: int = POOL) -> Populations:
    """A network whose logits are multiplied by these; by 1 it is calibrated."""
    base = evidence(lift, size, np.random.default_rng(0))
    truth = softmax(base)
    return Populations((Population(one * base, truth), Population(other * base, truth)))


class Binned(NamedTuple):
    """A model's confidences, of the ranks 0 to 1 of its samples, and the share of hits at each."""

    confidence: Callable[[Floats], Floats]
    hits: Callable[[Floats], Floats]


@dataclass(frozen=True)
class InBins:
    """Two models known by confidences and hits alone, which correlate by ALIKE."""

    models: tuple[Binned, ...]
    classes: int = CLASSES

    @functools.cached_property
    def truths(self) -> list[dict[str, float]]:
        return [truth_of(model) for model in self.models]

    def drawn(self, size: int, groups: Indices | None, source: np.random.Generator) -> Pair:
        assert groups is None
        ranks, chances = source.normal(size=(2, size))
        labels = source.integers(self.classes, size=size)
        return [self._predicted(model, ranks, chances, labels, source) for model in self.models]

    def _predicted(
        self,
        model: Binned,
        ranks: Floats,
        chances: Floats,
        labels: Indices,
        source: np.random.Generator,
    ) -> Predictions:
        ranks, chances = (
            norm.cdf(ALIKE**0.5 * each + (1 - ALIKE) ** 0.5 * source.normal(size=len(each)))
            for each in (ranks, chances)
        )
        confidence = model.confidence(ranks)
        hit = chances < model.hits(confidence)
        predicted = np.where(hit, labels, (labels + 1) % self.classes)
        rest = (1 - confidence) / (self.classes - 1)
        probs = np.repeat(rest[:, None], self.classes, 1)
        probs[np.arange(len(probs)), predicted] = confidence
        return Predictions(torch.from_numpy(np.log(probs)), torch.from_numpy(labels))


def truth_of(model: Binned) -> dict[str, float]:
    confidence = model.confidence((np.arange(POOL) + 0.5) / POOL)
    gap = model.hits(confidence) - confidence
    mass = confidence.argsort().argsort() * BINS // POOL
    found = {"ece": bins_of(confidence), "adaptive_ece": mass}
    return {name: float(np.abs(np.bincount(of, gap)).sum() / POOL) for name, of in found.items()}


def bins_of(confidence: Floats) -> Indices:
    return np.ceil(BINS * confidence).astype(np.int64) - 1


def gaps_in_bins(
    accuracy: float, size: int, by: float, classes: int = CLASSES, ece: float | None = None
) -> Binned:
    """Gaps of `by` standard errors of `size` samples in all bins, with alternating signs.

    ece: instead, one of this size, all of it in the bin that has most samples below the last.
    """
    least = 1 / classes
    mean = (accuracy - least) / (1 - least)
    grid = least + (1 - least) * beta.ppf((np.arange(4000) + 0.5) / 4000, 2 * mean, 2 - 2 * mean)
    grid = np.clip(grid, least + 1e-6, 1 - 1e-9)
    counts = np.bincount(bins_of(grid), minlength=BINS) / len(grid)
    variance = np.bincount(bins_of(grid), grid * (1 - grid), BINS) / len(grid)
    signs = np.where(np.arange(BINS) % 2, -1, 1)
    gaps = by * signs * np.sqrt(variance / size) / np.maximum(counts, 1e-9)
    if ece is not None:
        fullest = int(counts[:-1].argmax())
        gaps = np.where(np.arange(BINS) == fullest, -ece / counts[fullest], 0)
    return Binned(
        lambda ranks: np.interp(ranks, (np.arange(4000) + 0.5) / 4000, grid),
        lambda confidence: np.clip(confidence + gaps[bins_of(confidence)], 0, 1),
    )


def equal_errors(accuracy: float, size: int) -> InBins:
    """Of one ECE: all in one bin; a standard error in all bins. The second looks worse."""
    spread = gaps_in_bins(accuracy, size, 1.0)
    one = gaps_in_bins(accuracy, size, 0.0, ece=truth_of(spread)["ece"])
    return InBins((one, spread))


class Design(NamedTuple):
    """So many groups, each of `fewest` to `most` rows."""

    groups: int
    fewest: int
    most: int

    def __str__(self) -> str:
        rows = f"{self.fewest} to {self.most}" if self.fewest < self.most else str(self.most)
        return f"{self.groups} groups of {rows}"

    def drawn(self, source: np.random.Generator) -> Indices:
        """The group of each row, [N]."""
        sizes = source.integers(self.fewest, self.most + 1, size=self.groups)
        return np.repeat(np.arange(self.groups), sizes)
