"""What the intervals cover where the truth is known: the table of docs/uncertainty.md.

    python -m benchmarks.experiments.coverage  # an hour on one core; prints Markdown
    python -m benchmarks.experiments.coverage --studies  # minutes: shares on the front
    python -m benchmarks.experiments.coverage --pairs  # seconds: the time of all pairs of models

A world is two models of the same samples whose metrics are known in the population (ECE over its 15
bins, adaptive ECE over its 15 quantile bins). Sets of samples are drawn from it again and again,
each with the intervals of both models and of their difference.

Populations have logits, and labels by probabilities that are known. Where the samples of a set
belong to groups, what decides between the labels is normal, with a part that the rows of a group
share: the calibrated model stays calibrated. Models of bins have confidences, and true gaps in bins
of so many standard errors of a set, where no data can tell the gap from none.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import beta, norm

from study.schema.objective import Objective
from study.uncertainty.bootstrap import (
    estimates_of,
    front_shares,
    intervals_of,
    measured,
    side_of,
    values_of,
    worlds_of,
)
from study.uncertainty.intervals import Interval
from study.uncertainty.resampling import BINS, Draws, SampleTerms
from study.uncertainty.side import Side, hits_of
from study.uncertainty.words import BETTER, WORSE, word_for
from trainables.metrics import AFTER_TEMPERATURE
from trainables.metrics.smooth import error_at, fixed_point
from trainables.outputs.predictions import Predictions

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

LEVEL = 0.95
CLASSES = 10
POOL = 200_000
# How far one class stands out: accuracy is about .90, or .69, where confidences lie in all
# bins and small ECEs drown.
LIFTS = {"sure": 14.0, "unsure": 6.0}
CORRELATION = 0.3  # of what decides the labels of two rows of a group
ALIKE = 0.8  # correlation of the confidences, and of the hits, of two models of bins
MATTERS = 0.01
EQUAL = 1e-4  # of errors that are equal by construction

TRIALS, STUDIES, STUDY_SAMPLES, STUDY_RESAMPLES = 12, 200, 2000, 500
OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))


# ---- populations ---------------------------------------------------------------------------------


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


# ---- coverage ------------------------------------------------------------------------------------


class Held(NamedTuple):
    """Of one metric over all sets: the shares of intervals that hold the truth, of the first model,
    the second, and their difference; the median width of the last; how often a word says which
    model is better, and is right or wrong; how often it wrongly says "as good"."""

    one: float
    other: float
    difference: float
    width: float
    told: float
    wrong: float
    wrongly_good: float


def sets(world: World, of: int | Design, count: int, seed: int = 0) -> Iterator[Pair]:
    """What both models predict for so many samples, or groups of them."""
    source = np.random.default_rng([seed, *(of if isinstance(of, Design) else [of])])
    for _ in range(count):
        groups = of.drawn(source) if isinstance(of, Design) else None
        size = of if isinstance(of, int) else len(groups)
        yield world.drawn(size, groups, source)


def coverage(
    world: World,
    of: int | Design,
    count: int,
    names: Collection[str],
    resamples: int = 1000,
    level: float = LEVEL,
) -> dict[str, Held]:
    """What the intervals of each metric hold, over so many sets of samples or groups."""
    seen: dict[str, list[list[float]]] = defaultdict(list)
    for pair in sets(world, of, count):
        groups = pair[0].groups
        size = len(pair[0].labels)
        draws = _draws(size, resamples) if groups is None else Draws.of(size, resamples, 0, groups)
        parts = [measured(one, draws, names) for one in pair]
        own = [intervals_of(of_model, names, level) for of_model in parts]
        sides = []
        for predictions, part in zip(pair, parts, strict=True):
            values = values_of(part, names)
            sample = next(iter(part.values())).sample
            hits = hits_of(predictions, draws.groups)
            sides.append(Side(estimates_of(part), values, sample, hits, worlds_of(part, values)))
        for name in names:
            one, other = (truth[name] for truth in world.truths)
            apart = one - other
            between = sides[0].less(sides[1], name, level)
            of_each = zip((own[0][name], own[1][name], between), (one, other, apart), strict=True)
            held = [each.low <= truth <= each.high for each, truth in of_each]
            said = word_for(between, name, 0.0)
            true = word_for(Interval(apart, apart, apart), name, EQUAL)
            as_good = between.low >= -MATTERS and between.high <= MATTERS
            seen[name].append(
                [
                    *held,
                    between.high - between.low,
                    said == true,
                    said in (BETTER, WORSE) and said != true,
                    as_good and abs(apart) > MATTERS,
                ]
            )
    found = {}
    for name, rows in seen.items():
        columns = np.array(rows).T
        found[name] = Held(*columns[:3].mean(1), np.median(columns[3]), *columns[4:].mean(1))
    return found


@functools.lru_cache(maxsize=1)
def _draws(size: int, resamples: int) -> Draws:
    return Draws.of(size, resamples, 0)


# ---- the table -----------------------------------------------------------------------------------

BINNED = ("ece", "adaptive_ece")
ALL = (*BINNED, "classwise_ece", "nll")
OTHERS = ("mce", "debiased_l2", "smooth_ece", "ts_ece", "ts_adaptive_ece", "ts_nll")


class Cell(NamedTuple):
    """A world, how it is called, what a set of it has, how many sets, and what is measured."""

    called: str
    world: World
    of: int | Design
    sets: int
    metrics: tuple[str, ...]


def cells() -> Iterator[Cell]:
    """The rows of the table."""
    sure, unsure = (too_sure(lift) for lift in LIFTS.values())
    hundred = too_sure(12.0, size=40_000, classes=100)
    two = too_sure(3.0, classes=2)
    scaled = at_temperatures(LIFTS["unsure"], 1.0, 1.2)
    alike = at_temperatures(LIFTS["sure"], 1.2, 1.25)
    for size, count in ((200, 300), (500, 500), (2000, 150), (10_000, 40)):
        yield Cell("calibrated; too sure (sure)", sure, size, count, ALL)
        yield Cell("calibrated; too sure (unsure)", unsure, size, count, ALL)
        calibrated = gaps_in_bins(0.85, size, 0.0)
        for by in (0.0, 1.0, 1.5):
            world = InBins((calibrated, gaps_in_bins(0.85, size, by)))
            yield Cell(f"calibrated; gaps of {by:g} standard errors", world, size, count, BINNED)
        yield Cell("equal ECE, in one bin; in all", equal_errors(0.85, size), size, count, ("ece",))
    for size, count in ((500, 300), (2000, 100)):
        yield Cell("two classes: calibrated; too sure", two, size, count, ALL)
        yield Cell("100 classes: calibrated; too sure", hundred, size, count, (*BINNED, "nll"))
        yield Cell("a network; its logits x 1.2", scaled, size, count, ALL)
        yield Cell("nearly equal: logits x 1.2; x 1.25", alike, size, count, ALL)
    for world, kind in ((sure, "sure"), (unsure, "unsure")):
        for size, count in ((287, 150), (2000, 60)):
            yield Cell(f"calibrated; too sure ({kind})", world, size, count, OTHERS)
        for design in (Design(100, 200, 200), Design(60, 1, 40), Design(15, 1, 40)):
            count = 60 if design.most == design.fewest else 200
            metrics = ("ece", "adaptive_ece", "nll")
            yield Cell(f"calibrated; too sure ({kind})", world, design, count, metrics)


def print_table(part: float, only: str) -> None:
    """part: of the sets of each row. only: the rows of this size; empty for all."""
    print(
        "| samples | models | metric | true | one | other | difference | width | told | wrong"
        " | wrongly as good | sets |\n|" + "---|" * 12
    )
    for called, world, of, count, metrics in cells():
        size = f"{of:,}" if isinstance(of, int) else str(of)
        if only not in ("", size):
            continue
        count = max(2, round(part * count))
        for name, held in coverage(world, of, count, metrics).items():
            true = ", ".join(f"{truth[name]:.3g}" for truth in world.truths)
            shares = [f"{share:.3f}" for share in held]
            if name not in BINNED:  # in which something else matters
                shares[-1] = "-"
            row = [size, called, name, true, *shares, str(count)]
            print(f"| {' | '.join(row)} |", flush=True)


def print_pairs(count: int) -> None:
    """CPU seconds of the differences of all pairs of so many models, of 10,000 samples."""
    source = np.random.default_rng(0)
    world = InBins(tuple(gaps_in_bins(0.85, 10_000, k % 4 / 2) for k in range(count)))
    draws = Draws.of(10_000, 1000, 0)
    names = (*BINNED, "nll")
    sides = [side_of(names, one, draws) for one in world.drawn(10_000, None, source)]
    seconds = {}
    for metrics in (BINNED, ("nll",)):
        started = time.process_time()
        for one, other in itertools.combinations(sides, 2):
            for name in metrics:
                one.less(other, name, LEVEL)
        seconds[metrics] = time.process_time() - started
    binned, nll = seconds.values()
    print(f"{count} models, ECE and adaptive ECE: {binned:.2f} s, {binned / nll:.1f}x of NLL alone")


# ---- studies -------------------------------------------------------------------------------------


class Simulated(NamedTuple):
    """A study: of each of its trials what is true, and its resampled metrics on one sample."""

    truths: list[dict[str, float]]
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
        yield Simulated(
            [pool.metrics() for pool in pools],
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
    words.add_argument("--pairs", type=int, nargs="?", const=60, metavar="N", help="of N models")
    words.add_argument("--part", type=float, default=1.0, help="of the sets of each row")
    words.add_argument("--only", default="", metavar="SAMPLES", help="rows of this first column")
    given = words.parse_args()
    torch.set_num_threads(1)
    if given.pairs is not None:
        print_pairs(given.pairs)
        return
    if given.studies is None:
        print_table(given.part, given.only)
        return
    print("| share of resamples | truly on the front | trials |\n|---|---|---|")
    for share, truly, count in share_table(list(studies(given.studies))):
        print(f"| {share:.2f} | {truly:.2f} | {count} |")


if __name__ == "__main__":
    main()
