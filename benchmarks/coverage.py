"""What the intervals cover where the truth is known: the tables of docs/uncertainty.md.

    python -m benchmarks.coverage --replications 1000        # an hour on one core; prints Markdown

A population of logits; labels by probabilities that are known, so that every metric of the population is known too
(ECE over its 15 bins). Samples are drawn from it again and again, each with its intervals. Then whole studies of twelve
trials on the same samples: the share of resamples on the front against who truly is there, and paired differences.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from study.schema.objective import Objective
from study.uncertainty.bootstrap import front_shares
from study.uncertainty.consistency import calibrated_sums
from study.uncertainty.intervals import Resampled, intervals, of_difference
from study.uncertainty.resampling import BINS, Draws, Table

SIZES = (2000, 5000)
ERRORS = (0.0, 0.005, 0.01, 0.03, 0.08)
METRICS = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "debiased_l2")
LEVEL = 0.90
CLASSES = 10
POOL = 200_000
# How far one class stands out: accuracy is about .90, or .69, where confidences lie in all bins and small ECEs drown.
LIFTS = {"sure": 14.0, "unsure": 6.0}

TRIALS, STUDIES, STUDY_SAMPLES, STUDY_RESAMPLES = 12, 200, 2000, 500
OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))


class Population(NamedTuple):
    """Logits [N, K] and the probabilities [N, K] by which their labels truly come."""

    logits: NDArray[np.float64]
    truth: NDArray[np.float64]

    def sample(self, size: int, source: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Logits and labels of `size` samples."""
        chosen = source.integers(len(self.logits), size=size)
        return self.logits[chosen], drawn_labels(self.truth[chosen], source)

    def metrics(self) -> dict[str, float]:
        """Its own, from the definitions, with the expectation over labels for a label."""
        probs = softmax(self.logits)
        top = probs.argmax(axis=1)
        confidence, accuracy = (np.take_along_axis(p, top[:, None], 1)[:, 0] for p in (probs, self.truth))
        rank = confidence.argsort().argsort()
        gaps = {
            "width": np.bincount(np.ceil(BINS * confidence).astype(int) - 1, accuracy - confidence, BINS),
            "mass": np.bincount(rank * BINS // len(rank), accuracy - confidence, BINS),
        }
        return {
            "accuracy": accuracy.mean(),
            "nll": -(self.truth * np.log(probs)).sum(axis=1).mean(),
            "brier": (probs**2 - 2 * probs * self.truth).sum(axis=1).mean() + 1,
            "ece": np.abs(gaps["width"]).sum() / len(rank),
            "adaptive_ece": np.abs(gaps["mass"]).sum() / len(rank),
            "debiased_l2": np.sqrt((gaps["mass"] ** 2).sum() * BINS) / len(rank),
        }


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def drawn_labels(probs: NDArray[np.float64], source: np.random.Generator) -> NDArray[np.int64]:
    return (source.random((len(probs), 1)) > probs.cumsum(axis=1)).sum(axis=1).clip(max=probs.shape[1] - 1)


def evidence(lift: float, size: int, source: np.random.Generator) -> NDArray[np.float64]:
    """Logits of a calibrated classifier."""
    logits = source.normal(size=(size, CLASSES)) * 2.0
    logits[np.arange(size), source.integers(CLASSES, size=size)] += lift * np.sqrt(source.random(size))
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


def measured(logits: NDArray[np.float64], labels: NDArray[np.int64], draws: Draws) -> Resampled:
    """Without classwise ECE, which needs the most room."""
    table = Table.of(logits, labels, classwise=False)
    sample = table.sums(np.ones((len(labels), 1)))
    return Resampled(sample, table.sums(draws.counts), calibrated_sums(table, draws.uniforms))


def coverage(found: Population, size: int, replications: int, resamples: int = 1000) -> dict[str, float]:
    """In which share of the replications the interval of each metric holds the truth."""
    truth = found.metrics()
    source = np.random.default_rng([size, int(1e6 * truth["accuracy"])])
    draws = Draws.of(size, resamples, 0)
    covered = dict.fromkeys(METRICS, 0)
    for _ in range(replications):
        sure = intervals(measured(*found.sample(size, source), draws), LEVEL)
        for name in METRICS:
            covered[name] += sure[name].low <= truth[name] <= sure[name].high
    return {name: count / replications for name, count in covered.items()}


# ---- studies -------------------------------------------------------------------------------------------------------


class Simulated(NamedTuple):
    """A study: of each of its trials what is true, and its metrics and resampled metrics on one sample."""

    truths: list[dict[str, float]]
    estimates: list[dict[str, float]]
    values: list[dict[str, NDArray[np.floating]]]


def studies(count: int) -> Iterator[Simulated]:
    """Trials that see the same evidence through noise and temperatures of their own."""
    source, draws = np.random.default_rng(1), Draws.of(STUDY_SAMPLES, STUDY_RESAMPLES, 0)
    for _ in range(count):
        base = evidence(LIFTS["sure"], 10_000, source)
        truth = softmax(base)
        chosen = source.integers(len(base), size=STUDY_SAMPLES)
        labels = drawn_labels(truth[chosen], source)
        pools = [
            Population((base + source.normal(size=base.shape) * source.uniform(0.3, 1.2)) / scale, truth)
            for scale in source.uniform(0.75, 1.3, TRIALS)
        ]
        tables = [Table.of(pool.logits[chosen], labels, classwise=False) for pool in pools]
        estimates = [table.sums(np.ones((STUDY_SAMPLES, 1))).metrics() for table in tables]
        yield Simulated(
            [pool.metrics() for pool in pools],
            [{name: float(value[0]) for name, value in found.items()} for found in estimates],
            [table.sums(draws.counts).metrics() for table in tables],
        )


def share_table(simulated: list[Simulated]) -> list[tuple[float, float, int]]:
    """(mean share, share of those truly on the front, trials), for ten ranges of the share."""
    pairs = []
    for study in simulated:
        shares = front_shares({str(k): values for k, values in enumerate(study.values)}, OBJECTIVES)
        points = {str(k): {m: np.array([v]) for m, v in truth.items()} for k, truth in enumerate(study.truths)}
        truly = front_shares(points, OBJECTIVES)
        pairs += [(shares[name], truly[name]) for name in shares]
    found = np.array(pairs)
    place = np.minimum(found[:, 0] * 10, 9).astype(int)
    return [(*found[place == k].mean(axis=0), int((place == k).sum())) for k in range(10) if (place == k).any()]


def difference_coverage(simulated: list[Simulated]) -> dict[str, float]:
    """In which share of the pairs of trials the 95% interval of their difference holds the truth."""
    covered: dict[str, list[bool]] = defaultdict(list)
    for study in simulated:
        for one, name in itertools.product(range(0, TRIALS, 2), METRICS):
            truth, estimate, moved = (
                each[one][name] - each[one + 1][name] for each in (study.truths, study.estimates, study.values)
            )
            low, high = of_difference(name, estimate, moved)
            covered[name].append(low <= truth <= high)
    return {name: float(np.mean(held)) for name, held in covered.items()}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--replications", type=int, default=1000)
    words.add_argument("--resamples", type=int, default=1000)
    words.add_argument("--studies", type=int, default=STUDIES)
    given = words.parse_args()
    simulated = list(studies(given.studies))
    print("| share of resamples | truly on the front | trials |\n|---|---|---|")
    for share, truly, count in share_table(simulated):
        print(f"| {share:.2f} | {truly:.2f} | {count} |")
    row = difference_coverage(simulated)
    print(f"\n| difference of | {' | '.join(row)} |\n{'|---' * (1 + len(row))}|")
    print(f"| covered | {' | '.join(f'{share:.3f}' for share in row.values())} |")
    print(f"\n| samples | population | true ECE | {' | '.join(METRICS)} |\n{'|---' * (3 + len(METRICS))}|")
    for name, lift in LIFTS.items():
        for error in ERRORS:
            found = population(lift, error)
            for size in SIZES:
                row = coverage(found, size, given.replications, given.resamples).values()
                print(f"| {size} | {name} | {error:g} | {' | '.join(f'{share:.3f}' for share in row)} |", flush=True)


if __name__ == "__main__":
    main()
