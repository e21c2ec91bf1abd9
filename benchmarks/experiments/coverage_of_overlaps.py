"""What the intervals of mIoU cover: a table of docs/why/how-certain.md.

    python -m benchmarks.experiments.coverage_of_overlaps  # four minutes of one core; Markdown

The designs and models of coverage.py, unsure ones; of classes that are about as frequent,
and of classes of which the seldom ones have one label in 200.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.experiments.coverage import sets
from benchmarks.experiments.populations import (
    LIFTS,
    Design,
    Population,
    Populations,
    evidence,
    softmax,
)
from study.uncertainty.bootstrap import measured
from study.uncertainty.intervals import LEVEL, intervals, percentile, widened
from study.uncertainty.resampling import Draws
from trainables.outputs.predictions import Predictions

METRICS = ("miou", "miou_without_0")
MODELS = ("calibrated", "too sure", "their difference")
DESIGNS = (Design(100, 200, 200), Design(60, 1, 40), Design(500, 1, 1))
RAREST = {"even": 0.0, "uneven": 8.0}  # by how much the last class has less evidence
POOL = 50_000
RESAMPLES = 300


def two_models(rarest: float) -> Populations:
    """A calibrated model, and one that sees the same evidence through noise and is too sure."""
    source = np.random.default_rng(0)
    base = evidence(LIFTS["unsure"], POOL, source)
    base = base - rarest * np.linspace(0, 1, base.shape[1])
    noisier = base + 0.6 * source.normal(size=base.shape)
    truth = softmax(base)
    return Populations((Population(base, truth), Population(1.2 * noisier, truth)))


def overlaps_of(model: Population) -> NDArray[np.float64]:
    """METRICS of the population, by their definition, with the label's probabilities for a
    label."""
    predicted = model.logits.argmax(axis=1)
    shares = []
    for k in range(model.truth.shape[1]):
        here = predicted == k
        shared = model.truth[here, k].sum()
        shares.append(shared / (here.sum() + model.truth[:, k].sum() - shared))
    return np.array([np.mean(shares), np.mean(shares[1:])])


def held(world: Populations, design: Design, count: int) -> Iterator[NDArray[np.bool_]]:
    """Of each set, as in MODELS and by metric: whether the interval holds the truth."""
    one, other = map(overlaps_of, world.models)
    truths = np.stack([one, other, other - one])
    for predictions in sets(world, design, count):
        found = np.array(intervals_of(predictions))
        yield (found[..., 0] <= truths) & (truths <= found[..., 1])


def intervals_of(predictions: list[Predictions]) -> list[list[tuple[float, float]]]:
    """The ends of the intervals, as in MODELS and by metric."""
    draws = Draws.of(len(predictions[0].labels), RESAMPLES, 0, predictions[0].groups)
    parts = [measured(one, draws, METRICS)[""] for one in predictions]
    own = [intervals(part, wanted=METRICS) for part in parts]
    values = [part.resamples.metrics(METRICS) for part in parts]
    level = widened(LEVEL, parts[0].sample)
    between = []
    for name in METRICS:
        between.append(percentile(values[1][name] - values[0][name], level))
    return [*([found[name][1:] for name in METRICS] for found in own), between]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--sets", type=int, default=300)
    given = words.parse_args()
    torch.set_num_threads(1)
    print(f"| groups | classes | model | {' | '.join(METRICS)} |")
    print("|---" * (3 + len(METRICS)) + "|")
    for design in DESIGNS:
        for name, rarest in RAREST.items():
            shares = np.mean(list(held(two_models(rarest), design, given.sets)), axis=0)
            for model, covered in zip(MODELS, shares, strict=True):
                cells = [str(design), name, model, *(f"{share:.3f}" for share in covered)]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
