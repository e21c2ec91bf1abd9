"""The world: settings of methods whose truth is known, and the networks that training them gives.

A sample is evidence for ten classes, and its label is drawn from the softmax of that evidence. A
network sees the evidence through noise and scales it. A setting is (log of the noise, log of the
scale): the first decides accuracy, both decide calibration. The networks of a setting share half
of the noise's variance; each seed moves both logs a bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline, RectBivariateSpline
from scipy.optimize import minimize_scalar

Floats = NDArray[np.floating]

CLASSES, BINS = 10, 15
METHODS, TRIALS = 5, 8
SHARED = 0.5  # part of the noise's variance that the networks of a setting have in common
OF_SEED = (0.03, 0.06)  # standard deviations by which a seed moves the two logs
USUAL = math.log(1.1)  # log of the noise


class Kind(NamedTuple):
    """How the settings of a study vary: standard deviations of the two logs, beside
    those of their method."""

    noise: float
    scale: float
    one_sided: bool  # whether a setting's noise only exceeds that of its method


KINDS = {"spread": Kind(0.25, 0.25, True), "close": Kind(0.08, 0.1, False)}
OF_METHOD = (0.12, 0.25)


# ---- the truth -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """Accuracy, ECE and NLL of networks on the population, by (log of the noise, distance
    from the best scale)."""

    noises: Floats  # [P]: logs
    distances: Floats  # [Q]: log of the scale minus that with the lowest NLL
    best: Floats  # [P]: that log
    table: Floats  # [P, Q, 3]

    @classmethod
    def load(cls, path: Path) -> Truth:
        """From the file, made at the first call."""
        if not path.exists():
            made = cls.of(population(200_000, np.random.default_rng(99)))
            np.savez(
                path, noises=made.noises, distances=made.distances, best=made.best, table=made.table
            )
        with np.load(path, allow_pickle=False) as found:
            return cls(found["noises"], found["distances"], found["best"], found["table"])

    @classmethod
    def of(cls, people: Population, noises: int = 15, distances: int = 81) -> Truth:
        logs, steps = np.linspace(-0.8, 1.6, noises), np.linspace(-1.6, 1.6, distances)
        best = np.array([_best_scale(people, log) for log in logs])
        table = [
            [people.metrics(log, at + step) for step in steps]
            for log, at in zip(logs, best, strict=True)
        ]
        return cls(logs, steps, best, np.array(table))

    def best_scale(self, noise: Floats | float) -> Floats:
        """The log of the scale with the lowest NLL."""
        found: Floats = CubicSpline(self.noises, self.best)(noise)
        return found

    def of_networks(self, noise: Floats, scale: Floats) -> Floats:
        """[..., 3]: accuracy, ECE and NLL of networks with these logs."""
        return self._at(noise, np.asarray(scale) - self.best_scale(noise))

    def with_temperature(self, noise: Floats) -> Floats:
        """[..., 3]: the same, each with the temperature that is best for it."""
        return self._at(noise, np.zeros_like(noise))

    def of_settings(self, noise: Floats, scale: Floats, temperature: bool = False) -> Floats:
        """[..., 3]: the mean over seeds, by Gauss's quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(9)
        one, other = (
            grid.ravel()
            for grid in np.meshgrid(OF_SEED[0] * nodes, OF_SEED[1] * nodes, indexing="ij")
        )
        moved, scaled = noise[..., None] + one, scale[..., None] + other
        found = self.with_temperature(moved) if temperature else self.of_networks(moved, scaled)
        weight = np.outer(weights, weights).ravel() / weights.sum() ** 2
        mean: Floats = (found * weight[:, None]).sum(axis=-2)
        return mean

    def spread_of_seeds(self, noise: Floats) -> Floats:
        """The standard deviation of the accuracy of a setting's seeds. noise, result:
        [settings]."""
        moved = np.linspace(-3, 3, 61)
        weight = np.exp(-(moved**2) / 2)
        accuracy = self.with_temperature(noise[:, None] + OF_SEED[0] * moved)[..., 0]
        mean = np.average(accuracy, axis=1, weights=weight)
        found: Floats = np.sqrt(np.average((accuracy - mean[:, None]) ** 2, axis=1, weights=weight))
        return found

    def _at(self, noise: Floats, distance: Floats) -> Floats:
        # Linear in the distance: ECE has a kink at 0.
        of = [
            RectBivariateSpline(self.noises, self.distances, self.table[..., k], kx=3, ky=1)
            for k in range(3)
        ]
        return np.stack([one(noise, distance, grid=False) for one in of], axis=-1)


class Population(NamedTuple):
    """Evidence, the probabilities of its labels, and noise, each [CLASSES, N] float32."""

    evidence: Floats
    probs: Floats
    noise: Floats

    def logits(self, noise: float, scale: float) -> Floats:
        found: Floats = np.float32(math.exp(scale)) * (
            self.evidence + np.float32(math.exp(noise)) * self.noise
        )
        return found

    def metrics(self, noise: float, scale: float) -> tuple[float, float, float]:
        """Accuracy, ECE and NLL: the expectation over labels, given the
        evidence, stands for a label."""
        logits = self.logits(noise, scale)
        top = logits.argmax(axis=0)
        log_total = _log_total(logits)
        confidence = np.exp(logits.max(axis=0) - log_total)
        right = np.take_along_axis(self.probs, top[None], 0)[0]
        gaps = np.bincount(width_bin(confidence), right - confidence, BINS)
        nll = (log_total - (self.probs * logits).sum(axis=0)).mean(dtype=np.float64)
        return float(right.mean(dtype=np.float64)), float(np.abs(gaps).sum() / len(top)), float(nll)

    def nll(self, noise: float, scale: float) -> float:
        logits = self.logits(noise, scale)
        return float(
            (_log_total(logits) - (self.probs * logits).sum(axis=0)).mean(dtype=np.float64)
        )


def population(size: int, source: np.random.Generator) -> Population:
    seen = evidence(size, source)
    return Population(
        seen, np.exp(seen - _log_total(seen)), source.standard_normal(seen.shape, np.float32)
    )


def _best_scale(people: Population, noise: float) -> float:
    return float(
        minimize_scalar(lambda log: people.nll(noise, log), bounds=(-2.5, 1.0), method="bounded").x
    )


def _log_total(logits: Floats) -> Floats:
    top = logits.max(axis=0)
    found: Floats = top + np.log(np.exp(logits - top).sum(axis=0))
    return found


def width_bin(confidence: Floats) -> NDArray[np.int32]:
    """The equal-width bin (lo, hi] of each confidence."""
    return np.ceil(confidence * BINS).astype(np.int32).clip(1, BINS) - 1


# ---- studies and networks ------------------------------------------------------------------------


def evidence(size: int, source: np.random.Generator) -> Floats:
    """[CLASSES, size] float32: one class stands out."""
    found = source.standard_normal((CLASSES, size), np.float32)
    found[source.integers(CLASSES, size=size), np.arange(size)] += source.gamma(
        6, 1.1, size=size
    ).astype(np.float32)
    return found


def drawn_labels(seen: Floats, source: np.random.Generator) -> NDArray[np.int64]:
    probs = np.exp(seen - _log_total(seen))
    found: NDArray[np.int64] = (
        (source.random(seen.shape[1]) > probs.cumsum(axis=0)).sum(axis=0).clip(max=CLASSES - 1)
    )
    return found


@dataclass(frozen=True)
class Settings:
    """The settings of one simulated search, method after method; the first of a
    method is its default."""

    number: int  # of the study
    noise: Floats  # [settings]: logs
    scale: Floats  # [settings]: logs

    @classmethod
    def drawn(cls, kind: Kind, number: int, truth: Truth) -> Settings:
        source = np.random.default_rng([7, number])
        of_method = np.repeat(source.normal(size=(2, METHODS)), TRIALS, axis=1)
        own = source.normal(size=(2, METHODS * TRIALS))
        moved = np.abs(own[0]) if kind.one_sided else own[0]
        noise = USUAL + OF_METHOD[0] * of_method[0] + kind.noise * moved
        scale = truth.best_scale(noise) + OF_METHOD[1] * of_method[1] + kind.scale * own[1]
        return cls(number, noise, scale)

    def __len__(self) -> int:
        return len(self.noise)

    def of_seed(self, setting: int, seed: int) -> tuple[float, float]:
        """The two logs of a trained network. Seed 0 is the trial's; others are fresh."""
        moved = np.random.default_rng([7, self.number, setting, seed, 0]).normal(size=2) * OF_SEED
        return float(self.noise[setting] + moved[0]), float(self.scale[setting] + moved[1])


class Split:
    """A validation split: its labels, and what the networks of a study predict on it."""

    def __init__(self, settings: Settings, samples: int) -> None:
        source = np.random.default_rng([7, settings.number, samples])
        self.settings = settings
        self.samples = samples
        self.evidence = evidence(samples, source)
        self.labels = drawn_labels(self.evidence, source)
        self.shared = source.standard_normal(
            (len(settings), CLASSES, samples), np.float32
        ) * np.float32(SHARED**0.5)

    def logits(self, networks: list[tuple[int, int]]) -> Floats:
        """[CLASSES, networks, samples] float32, of each (setting, seed)."""
        found = np.empty((CLASSES, len(networks), self.samples), np.float32)
        for place, (setting, seed) in enumerate(networks):
            source = np.random.default_rng([7, self.settings.number, setting, seed, self.samples])
            noise, scale = (
                np.float32(math.exp(log)) for log in self.settings.of_seed(setting, seed)
            )
            own = source.standard_normal((CLASSES, self.samples), np.float32) * np.float32(
                (1 - SHARED) ** 0.5
            )
            found[:, place] = scale * (self.evidence + noise * (self.shared[setting] + own))
        return found
