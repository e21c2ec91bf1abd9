"""What the intervals cover where the truth is known: the tables of docs/uncertainty.md.

    python -m benchmarks.experiments.coverage  # two hours on one core; writes coverage.csv
    python -m benchmarks.experiments.coverage --only smooth_ece --replications 300  # 15 minutes
    python -m benchmarks.experiments.coverage --studies  # minutes; prints Markdown

A population of logits; labels by probabilities that are known, so that every metric of the
population is known too (ECE over its 15 bins). Samples are drawn from it again and again, each with
its intervals. Rows that the CSV already has are kept: started again, it goes on after them.

--studies: whole studies of twelve trials on the same samples; the share of resamples on the front
against who truly is there, and paired differences.

Samples that belong together: coverage_of_groups.py.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from study.schema.objective import Objective
from study.uncertainty.bootstrap import front_shares, measured
from study.uncertainty.intervals import Interval, intervals, of_difference
from study.uncertainty.resampling import BINS, Draws, SampleTerms
from study.uncertainty.smoothing import LEAST
from trainables.metrics import AFTER_TEMPERATURE
from trainables.metrics.shared.post_hoc import fit_temperature
from trainables.metrics.smooth import error_at, fixed_point
from trainables.outputs.predictions import Predictions

SIZES = (287, 2000, 5000)  # 287: the validation split of digits
ERRORS = (0.0, 0.005, 0.01, 0.03, 0.08)
SCORES = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "debiased_l2")
METRICS = (*SCORES, "mce", "classwise_ece", "smooth_ece")
SAME = "smooth_ece, same bandwidth"
LEVEL = 0.90
CLASSES = 10
POOL = 200_000
# How far one class stands out: accuracy is about .90, or .69, where confidences lie in all
# bins and small ECEs drown.
LIFTS = {"sure": 14.0, "unsure": 6.0}
# After temperature scaling, `sure` and `unsure` are perfectly calibrated whatever their
# error, `noisy` is not.
NOISY = [("noisy", 0.01), ("noisy", 0.03)]
SCALED = [("sure", 0.03), ("unsure", 0.03), *NOISY]
RESULTS = Path(__file__).parent / "results" / "coverage.csv"

TRIALS, STUDIES, STUDY_SAMPLES, STUDY_RESAMPLES = 12, 200, 2000, 500
OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))


class Population(NamedTuple):
    """Logits [N, K] and the probabilities [N, K] by which their labels truly come."""

    logits: NDArray[np.float64]
    truth: NDArray[np.float64]

    def sample(
        self, size: int, source: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
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


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def drawn_labels(probs: NDArray[np.float64], source: np.random.Generator) -> NDArray[np.int64]:
    return labels_at(probs, source.random(len(probs)))


def labels_at(probs: NDArray[np.float64], heights: NDArray[np.float64]) -> NDArray[np.int64]:
    """The class at which the probabilities [N, K], added up, reach the height [N]."""
    return (heights[:, None] > probs.cumsum(axis=1)).sum(axis=1).clip(max=probs.shape[1] - 1)


def evidence(lift: float, size: int, source: np.random.Generator) -> NDArray[np.float64]:
    """Logits of a calibrated classifier."""
    logits = source.normal(size=(size, CLASSES)) * 2.0
    logits[np.arange(size), source.integers(CLASSES, size=size)] += lift * np.sqrt(
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


def noisy(error: float, size: int = POOL) -> Population:
    """`sure` with a fraction of its labels replaced at random, which no temperature mends;
    the ECE grows with it."""
    calibrated = population(LIFTS["sure"], 0.0, size)

    def mixed(fraction: float) -> Population:
        return calibrated._replace(truth=(1 - fraction) * calibrated.truth + fraction / CLASSES)

    return mixed(error / mixed(1.0).metrics()["ece"])


class Coverage(NamedTuple):
    """A metric's true value, the fraction of its intervals that contain it, and their mean ends."""

    truth: float
    covered: float
    low: float
    high: float
    sets: int


def coverage(
    found: Population,
    size: int,
    replications: int,
    resamples: int = 1000,
    wanted: Collection[str] = METRICS,
) -> dict[str, Coverage]:
    """How often the interval of each wanted metric contains the truth.

    The truth of a ts_ metric is the population's at its best temperature. Those named
    `ts_ece, as fitted` compare the
    same intervals with the population at the temperature fitted on all samples of each set,
    which a registered model
    would have; their truth is its mean. `smooth_ece, same bandwidth` compares with
    the population at the bandwidth of
    each set, which is what its interval is of.
    """
    truth = found.metrics()
    if "smooth_ece" in wanted:
        truth["smooth_ece"] = found.smooth_ece()
        widths = np.geomspace(LEAST, 0.5, 40)
        at_width = [found.smooth_ece(width) for width in widths]
    source = np.random.default_rng([size, int(1e6 * truth["accuracy"])])
    draws = Draws.of(size, resamples, 0)
    scaled = any(name.startswith(AFTER_TEMPERATURE) for name in wanted)
    if scaled:
        best = found.best_log_t()
        truth |= {
            AFTER_TEMPERATURE + name: value for name, value in found.scaled(best).metrics().items()
        }
        truth["ts_smooth_ece"] = found.scaled(best).smooth_ece()
        grid = best + np.linspace(-0.5, 0.5, 21)
        part = Population(found.logits[:50_000], found.truth[:50_000])
        along = [part.scaled(log_t).metrics() for log_t in grid]
    seen: dict[str, list[tuple[float, Interval]]] = defaultdict(list)
    for _ in range(replications):
        predictions = Predictions(*map(torch.from_numpy, found.sample(size, source)))
        fitted = (
            math.log(fit_temperature(predictions.logits, predictions.labels)) if scaled else 0.0
        )
        for prefix, resampled in measured(predictions, draws, wanted).items():
            for name, interval in intervals(resampled, LEVEL).items():
                if prefix + name not in wanted:
                    continue
                seen[prefix + name].append((truth[prefix + name], interval))
                if prefix + name == "smooth_ece":
                    seen[SAME].append(
                        (
                            float(np.interp(max(LEAST, interval.estimate), widths, at_width)),
                            interval,
                        )
                    )
                if prefix and name != "smooth_ece":
                    value = np.interp(fitted, grid, [each[name] for each in along])
                    seen[f"{prefix}{name}, as fitted"].append((float(value), interval))
    return {name: _summary(pairs) for name, pairs in seen.items()}


def _summary(pairs: list[tuple[float, Interval]]) -> Coverage:
    truths, lows, highs = np.array([(truth, found.low, found.high) for truth, found in pairs]).T
    covered = np.mean((lows <= truths) & (truths <= highs))
    return Coverage(
        *(float(each) for each in (truths.mean(), covered, lows.mean(), highs.mean())), len(pairs)
    )


def write_coverage(replications: int, scaled_replications: int, only: Collection[str]) -> None:
    """Add the cells that RESULTS lacks, each as soon as it is known. only: metrics, or all."""
    done = set()
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            done = {
                (row["samples"], row["population"], row["true_ece"], row["metric"])
                for row in csv.DictReader(file)
            }
    cells, after = (
        [*itertools.product(LIFTS, ERRORS), *NOISY],
        tuple(AFTER_TEMPERATURE + name for name in METRICS[1:]),
    )
    plan = [(size, *cell, METRICS, replications) for size in SIZES for cell in cells]
    plan += [(size, *cell, after, scaled_replications) for size in SIZES[:2] for cell in SCALED]
    with RESULTS.open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        if not done:
            out.writerow(["samples", "population", "true_ece", "metric", *Coverage._fields])
        for size, name, error, metrics, count in plan:
            cell = (str(size), name, f"{error:g}")
            wanted = [
                metric
                for metric in metrics
                if (*cell, metric) not in done and metric in (only or [metric])
            ]
            if not wanted:
                continue
            found = noisy(error) if name == "noisy" else population(LIFTS[name], error)
            for metric, row in coverage(found, size, count, wanted=wanted).items():
                out.writerow([*cell, metric, *(f"{value:.4g}" for value in row)])
            file.flush()


# ---- studies -------------------------------------------------------------------------------------


class Simulated(NamedTuple):
    """A study: of each of its trials what is true, and its metrics and resampled
    metrics on one sample."""

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
            Population(
                (base + source.normal(size=base.shape) * source.uniform(0.3, 1.2)) / scale, truth
            )
            for scale in source.uniform(0.75, 1.3, TRIALS)
        ]
        tables = [SampleTerms.of(pool.logits[chosen], labels, classwise=False) for pool in pools]
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
        points = {
            str(k): {m: np.array([v]) for m, v in truth.items()}
            for k, truth in enumerate(study.truths)
        }
        truly = front_shares(points, OBJECTIVES)
        pairs += [(shares[name], truly[name]) for name in shares]
    found = np.array(pairs)
    place = np.minimum(found[:, 0] * 10, 9).astype(int)
    return [
        (*found[place == k].mean(axis=0), int((place == k).sum()))
        for k in range(10)
        if (place == k).any()
    ]


def difference_coverage(simulated: list[Simulated]) -> dict[str, float]:
    """In which share of the pairs of trials the 95% interval of their
    difference holds the truth."""
    covered: dict[str, list[bool]] = defaultdict(list)
    for study in simulated:
        for one, name in itertools.product(range(0, TRIALS, 2), SCORES):
            truth, estimate, moved = (
                each[one][name] - each[one + 1][name]
                for each in (study.truths, study.estimates, study.values)
            )
            low, high = of_difference(name, estimate, moved)
            covered[name].append(low <= truth <= high)
    return {name: float(np.mean(held)) for name, held in covered.items()}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument(
        "--studies",
        type=int,
        nargs="?",
        const=STUDIES,
        metavar="N",
        help="simulate N studies instead",
    )
    words.add_argument("--replications", type=int, default=1000)
    words.add_argument(
        "--scaled-replications", type=int, default=300, help="of ts_ metrics, which take longer"
    )
    words.add_argument(
        "--only", nargs="+", metavar="METRIC", default=(), help="of coverage; default: all"
    )
    given = words.parse_args()
    torch.set_num_threads(1)
    if given.studies is None:
        write_coverage(given.replications, given.scaled_replications, given.only)
        return
    simulated = list(studies(given.studies))
    print("| share of resamples | truly on the front | trials |\n|---|---|---|")
    for share, truly, count in share_table(simulated):
        print(f"| {share:.2f} | {truly:.2f} | {count} |")
    row = difference_coverage(simulated)
    print(f"\n| difference of | {' | '.join(row)} |\n{'|---' * (1 + len(row))}|")
    print(f"| covered | {' | '.join(f'{share:.3f}' for share in row.values())} |")


if __name__ == "__main__":
    main()
