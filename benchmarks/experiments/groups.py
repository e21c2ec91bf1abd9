"""What intervals cost where samples belong together, beside 2,000 samples that do not.

    python -m benchmarks.experiments.groups  # a minute; prints a table

CPU seconds of all threads, and in brackets the ratio to 2,000 samples, each by itself. The product
is what all resamples take more than one: the sums of each sample or group, times the draws.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from study.uncertainty.bootstrap import intervals_of, measured, resampled_names
from study.uncertainty.resampling import Draws, SampleTerms, draws_for
from trainables.machine import one_torch_thread
from trainables.outputs.predictions import Predictions

CLASSES = 11
REPEATS = 25


def predictions(samples: int, groups: int | None) -> Predictions:
    """Over-confident ones, right in about .8, in groups of one size."""
    source = np.random.default_rng(0)
    logits = source.normal(size=(samples, CLASSES)) * 2
    labels = (logits + source.gumbel(size=logits.shape) * 0.8).argmax(axis=1)
    together = None if groups is None else torch.arange(samples) * groups // samples
    return Predictions(
        torch.from_numpy(logits.astype(np.float32)), torch.from_numpy(labels), together
    )


def cpu_seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def product_and_rows(found: Predictions, draws: Draws) -> tuple[float, float]:
    """Of the sums of all resamples: the product, and what does not depend on their number."""
    table = SampleTerms.of(found.logits.double().numpy(), found.labels.numpy(), groups=draws.groups)
    weights = draws.weights
    one = np.ascontiguousarray(weights[:, :1])
    rows = []
    products = []
    for _ in range(REPEATS):
        rows.append(cpu_seconds(lambda: table.sums(one)))
        products.append(cpu_seconds(lambda: table.sums(weights)) - rows[-1])
    return float(np.median(products)), float(np.median(rows))


def every_interval(found: Predictions, draws: Draws) -> None:
    intervals_of(measured(found, draws, resampled_names()), resampled_names())


def used() -> float:
    """Memory in use now, in GB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e9


def most_used() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--samples", type=int, default=100_000)
    words.add_argument("--groups", type=int, default=100)
    words.add_argument("--resamples", type=int, default=1000)
    given = words.parse_args()
    small = predictions(2000, None)
    fewer = predictions(given.samples // 5, given.groups)
    large = predictions(given.samples, given.groups)
    with one_torch_thread():
        every_interval(small, draws_for(small, 10))  # imports
        draws = draws_for(large, given.resamples)
        before = used()
        every = cpu_seconds(lambda: every_interval(large, draws))
        more = most_used() - before
        sides = [(each, draws_for(each, given.resamples)) for each in (small, fewer, large)]
        others = [cpu_seconds(lambda of=of: every_interval(*of)) for of in sides[:2]]
        products, rows = zip(*(product_and_rows(*of) for of in sides), strict=True)
    heads = ("2,000 by themselves", f"{len(fewer.labels):,}", f"{given.samples:,}, s")
    print(
        f"| {given.resamples:,} resamples, {CLASSES} classes, {given.groups} groups |"
        f" {' | '.join(heads)} |\n|---|---|---|---|"
    )
    for what, found in (
        ("the product of draws and sums", products),
        ("what is computed once a sample", rows),
        ("all metrics, ts_ too", (*others, every)),
    ):
        ratios = [f"{value:.2g} ({value / found[0]:.2g}x)" for value in found[1:]]
        print(f"| {what} | {found[0]:.2g} | {' | '.join(ratios)} |")
    print(f"\nMemory: {more:.2f} GB more.")


if __name__ == "__main__":
    main()
