"""What the intervals cover where the truth is known: the table of docs/why/how-certain.md.

    python -m benchmarks.experiments.coverage  # an hour on one core; prints Markdown
    python -m benchmarks.experiments.coverage --studies  # minutes: shares on the front
    python -m benchmarks.experiments.coverage --pairs  # seconds: the time of all pairs of models

A world is two models of the same samples whose metrics are known in the population (ECE over its 15
bins, adaptive ECE over its 15 quantile bins). Sets of samples are drawn from it again and again,
each with the intervals of both models and of their difference.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.experiments.populations import (
    LIFTS,
    Design,
    InBins,
    Pair,
    Population,
    World,
    at_temperatures,
    drawn_labels,
    equal_errors,
    evidence,
    gaps_in_bins,
    softmax,
    too_sure,
)
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
from study.uncertainty.resampling import Draws, SampleTerms
from study.uncertainty.side import Side, hits_of
from study.uncertainty.words import BETTER, WORSE, word_for

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

LEVEL = 0.95
MATTERS = 0.01
EQUAL = 1e-4  # of errors that are equal by construction

TRIALS, STUDIES, STUDY_SAMPLES, STUDY_RESAMPLES = 12, 200, 2000, 500
OBJECTIVES = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))


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
