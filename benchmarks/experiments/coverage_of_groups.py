"""What the intervals of samples that belong together cover: a table of docs/uncertainty.md.

    python -m benchmarks.experiments.coverage_of_groups  # ten minutes of one core; prints Markdown

The populations of coverage.py; but a group's labels come together: what decides between them is
normal, with a part that the rows of a group share. Each row by itself still has the label's
probabilities, so that every metric of the population is known as before, and the calibrated model
stays calibrated. Each set is resampled by group and, in brackets, by row: the harm of not knowing
groups.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.experiments.coverage import LIFTS, POOL, Population, evidence, labels_at, softmax
from study.uncertainty.bootstrap import measured
from study.uncertainty.intervals import (
    LEVEL,
    SIGNIFICANCE,
    Interval,
    Resampled,
    intervals,
    of_difference,
    widened,
)
from study.uncertainty.resampling import Draws
from trainables.outputs.predictions import Predictions

CORRELATION = 0.3  # of what decides the labels of two rows of a group
METRICS = ("accuracy", "nll", "brier", "ece")
MODELS = ("calibrated", "too sure", "their difference")
RESAMPLES = {"group": 1000, "row": 200}  # 20,000 rows take long


class Design(NamedTuple):
    """So many groups, each of `fewest` to `most` rows."""

    groups: int
    fewest: int
    most: int

    def __str__(self) -> str:
        rows = f"{self.fewest} to {self.most}" if self.fewest < self.most else str(self.most)
        return f"{self.groups} of {rows}"

    def drawn(self, source: np.random.Generator) -> NDArray[np.int64]:
        """The group of each row, [N]."""
        sizes = source.integers(self.fewest, self.most + 1, size=self.groups)
        return np.repeat(np.arange(self.groups), sizes)


DESIGNS = (Design(100, 200, 200), Design(60, 1, 40), Design(15, 1, 40), Design(500, 1, 1))


class Coverage(NamedTuple):
    """The share of intervals that contain the truth, by metric and then as in MODELS."""

    covered: dict[str, list[float]]
    rejected: float  # how often the calibrated model is found not to be so


def two_models(lift: float, size: int = POOL) -> list[Population]:
    """A calibrated model, and one that sees the same evidence through noise and is too sure."""
    source = np.random.default_rng(0)
    base = evidence(lift, size, source)
    truth = softmax(base)
    noisier = base + 0.6 * source.normal(size=base.shape)
    return [Population(base, truth), Population(1.2 * noisier, truth)]


def labels_of_groups(
    truth: NDArray[np.float64], groups: NDArray[np.int64], source: np.random.Generator
) -> NDArray[np.int64]:
    """Labels by the probabilities [N, K], those of a group likely, or unlikely, together."""
    shared = source.normal(size=groups.max() + 1)[groups]
    own = source.normal(size=len(groups))
    latent = math.sqrt(CORRELATION) * shared + math.sqrt(1 - CORRELATION) * own
    likely_first = np.argsort(-truth, axis=1)
    place = labels_at(np.take_along_axis(truth, likely_first, 1), norm.cdf(latent))
    return np.take_along_axis(likely_first, place[:, None], 1)[:, 0]


def sets(models: list[Population], design: Design, count: int) -> Iterator[list[Predictions]]:
    """What the models predict for the same rows."""
    source = np.random.default_rng(design)
    for _ in range(count):
        groups = design.drawn(source)
        chosen = source.integers(len(models[0].logits), size=len(groups))
        labels = labels_of_groups(models[0].truth[chosen], groups, source)
        shared = (torch.from_numpy(labels), torch.from_numpy(groups))
        yield [Predictions(torch.from_numpy(model.logits[chosen]), *shared) for model in models]


def coverage(
    models: list[Population], design: Design, count: int, by: str, resamples: int
) -> Coverage:
    """Of 95% intervals of so many sets. by: "group" or "row"; the sets are the same for both."""
    truths = [model.metrics() for model in models]
    held: dict[str, list[list[bool]]] = defaultdict(list)
    rejected = []
    for predictions in sets(models, design, count):
        groups = predictions[0].groups
        if by == "row":
            groups = None
            predictions = [Predictions(one.logits, one.labels) for one in predictions]
        draws = Draws.of(len(predictions[0].labels), resamples, 0, groups)
        parts = [measured(one, draws, METRICS)[""] for one in predictions]
        for name, found in intervals_of_set(parts).items():
            one, other = (truth[name] for truth in truths)
            pairs = zip(found, (one, other, other - one), strict=True)
            held[name].append([each.low <= truth <= each.high for each, truth in pairs])
        rejected.append(rejects(parts[0]))
    covered = {name: np.mean(rows, axis=0).tolist() for name, rows in held.items()}
    return Coverage(covered, float(np.mean(rejected)))


def intervals_of_set(parts: list[Resampled]) -> dict[str, list[Interval]]:
    """The intervals of each metric, as in MODELS."""
    one, other = (intervals(part, wanted=METRICS) for part in parts)
    values, moved = (part.resamples.metrics(METRICS) for part in parts)
    level = widened(LEVEL, parts[0].sample)
    found = {}
    for name in METRICS:
        estimate = other[name].estimate - one[name].estimate
        ends = of_difference(name, estimate, moved[name] - values[name], level)
        found[name] = [one[name], other[name], Interval(estimate, *ends)]
    return found


def rejects(part: Resampled) -> bool:
    """Whether the test by ECE, at 5%, finds that the model is not calibrated."""
    calibrated = part.calibrated.calibration(["ece"])["ece"]
    as_large = np.sum(calibrated >= part.estimates(["ece"])["ece"])
    return bool((1 + as_large) / (1 + len(calibrated)) <= SIGNIFICANCE)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--sets", type=int, default=1000)
    given = words.parse_args()
    torch.set_num_threads(1)
    print(f"| groups | confidences | model | {' | '.join(METRICS)} | rejected |")
    print("|---" * (4 + len(METRICS)) + "|")
    for design in DESIGNS:
        for name, lift in LIFTS.items():
            models = two_models(lift)
            ways = [coverage(models, design, given.sets, *way) for way in RESAMPLES.items()]
            for number, model in enumerate(MODELS):
                cells = [str(design), name, model]
                for metric in METRICS:
                    cells.append(both([way.covered[metric][number] for way in ways]))
                cells.append(both([way.rejected for way in ways]) if number == 0 else "")
                print(f"| {' | '.join(cells)} |", flush=True)


def both(shares: list[float]) -> str:
    """The share by group, and by row in brackets."""
    by_group, by_row = shares
    return f"{by_group:.3f} ({by_row:.3f})"


if __name__ == "__main__":
    main()
