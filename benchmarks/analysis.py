"""What reading a study costs: the paired bootstrap, beside a loop over resamples; the front of many trials.

    python -m benchmarks.analysis            # a minute; prints a table for RESULTS.md

The loop does what one writes first: for each resample take its rows and call the metrics on them. It is timed on a few
resamples of a few trials and multiplied up. Both start from logits [N, K] in memory, in one process.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.coverage import drawn_labels, evidence, softmax
from study.bootstrap import measured
from study.intervals import intervals
from study.objective import Objective
from study.pareto import front
from study.records import TrialRecord
from study.resampling import Draws
from trainables import metrics
from trainables.predictions import Predictions

METRICS = ("accuracy", "nll", "ece", "classwise_ece")
AFTER = tuple(f"ts_{name}" for name in METRICS)
LOOPED_TRIALS, LOOPED_RESAMPLES = 2, 20


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def trials(count: int, samples: int) -> list[Predictions]:
    """Of one evidence, each through noise of its own; accuracy about .85, over-confident."""
    source = np.random.default_rng(0)
    base = evidence(14.0, samples, source)
    labels = torch.from_numpy(drawn_labels(softmax(base / 1.5), source))
    noisy = (base + source.normal(size=base.shape) for _ in range(count))
    return [Predictions(torch.from_numpy(logits.astype(np.float32)), labels) for logits in noisy]


def bootstrap(found: list[Predictions], resamples: int, wanted: tuple[str, ...]) -> None:
    draws = Draws.of(len(found[0].labels), resamples, 0)
    for predictions in found:
        for part in measured(predictions, draws, wanted).values():
            intervals(part)


def loop(found: list[Predictions], resamples: int) -> None:
    source = np.random.default_rng(0)
    for _ in range(resamples):
        rows = torch.from_numpy(source.integers(len(found[0].labels), size=len(found[0].labels)))
        for predictions in found:
            logits, labels = predictions.logits[rows], predictions.labels[rows]
            for name in METRICS:
                float(metrics.find(name)(logits, labels))


def front_seconds(count: int) -> float:
    source = random.Random(0)
    objectives = Objective("accuracy", "maximize"), Objective("ece", "minimize")
    records = [
        TrialRecord("focal", number, "complete", {}, {"accuracy": source.random(), "ece": source.random()})
        for number in range(count)
    ]
    return seconds(lambda: front(records, objectives))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--trials", type=int, default=60)
    words.add_argument("--samples", type=int, default=5000)
    words.add_argument("--resamples", type=int, default=1000)
    given = words.parse_args()
    found = trials(given.trials, given.samples)
    short = found[:LOOPED_TRIALS]
    loop(short, 1)  # imports
    scale = given.trials * given.resamples / (len(short) * LOOPED_RESAMPLES)
    looped = seconds(lambda: loop(short, LOOPED_RESAMPLES)) * scale
    work = f"{given.resamples:,} resamples, {given.trials} trials x {given.samples:,} x 10"
    print("| what | s | the loop, s | ratio |\n|---|---|---|---|")
    ours = seconds(lambda: bootstrap(found, given.resamples, METRICS))
    print(f"| {', '.join(METRICS)}: {work} | {ours:.1f} | {looped:.0f} | {looped / ours:.0f}x |", flush=True)
    after = seconds(lambda: bootstrap(found, given.resamples, AFTER))
    print(f"| the same after temperatures refitted in each resample | {after:.1f} | | |", flush=True)
    print(f"| front of 10,000 trials | {front_seconds(10_000):.2f} | | |")


if __name__ == "__main__":
    main()
