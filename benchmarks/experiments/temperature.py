"""What the prior of the temperature fit changes, and what it costs.

    python -m benchmarks.experiments.temperature [--draws 200]

Networks that are right more often than they say: ten logits, normal around 0 with standard
deviation `spread`, one of them `ahead` higher, and labels that come by the softmax of logits
/ .28. The true T is .28.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from study.uncertainty.resampling import Draws
from study.uncertainty.temperature import temperatures
from trainables.metrics.scores import negative_log_likelihood
from trainables.metrics.shared import post_hoc

TRUE, CLASSES = 0.28, 10


def population(
    samples: int,
    random: np.random.Generator,
    ahead: float = 4.0,
    spread: float = 1.0,
    true: float = TRUE,
) -> tuple[Tensor, Tensor]:
    """Logits [N, 10] and labels that come by softmax(logits / true)."""
    logits = random.normal(size=(samples, CLASSES)) * spread
    logits[np.arange(samples), random.integers(CLASSES, size=samples)] += ahead
    probs = torch.softmax(torch.from_numpy(logits) / true, dim=-1).numpy()
    labels = (probs.cumsum(axis=1) > random.random((samples, 1))).argmax(axis=1)
    return torch.from_numpy(logits), torch.from_numpy(labels)


def right_samples(samples: int, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Drawn again until every prediction is right."""
    while True:
        logits, labels = population(samples, random)
        if torch.equal(logits.argmax(dim=1), labels):
            return logits, labels


def small_splits(draws: int) -> None:
    random = np.random.default_rng(0)
    new, truth = population(100_000, random)
    nll = lambda by: float(negative_log_likelihood(new / by, truth))  # noqa: E731
    print(
        f"accuracy {float((new.argmax(1) == truth).double().mean()):.4f}, NLL as trained"
        f" {nll(1.0):.3f}"
    )
    print(f"at the true T, {TRUE}: {nll(TRUE):.4f}\n")
    print("| 60 samples, all right | T | NLL on new data |\n|---|---|---|")
    splits = [right_samples(60, random) for _ in range(draws)]
    for name, fit in (
        ("with the prior", post_hoc.fit_temperature),
        ("by NLL alone", post_hoc.fit_temperature_by_nll),
    ):
        found = [fit(*split) for split in splits]
        values = [nll(by) for by in found]
        print(
            f"| {name} | {np.mean(found):.3f} ({np.std(found):.3f}) | {np.mean(values):.3f}"
            f" ({np.std(values):.3f}) |"
        )
    for true in (0.5, 1.5, 3.0):
        moved = []
        for _ in range(draws):
            split = population(1000, random, spread=2.0, true=true)
            moved.append(
                abs(post_hoc.fit_temperature(*split) / post_hoc.fit_temperature_by_nll(*split) - 1)
            )
        print(
            f"\n1,000 samples at a true T of {true}: the prior moves T by"
            f" {100 * np.mean(moved):.2f}% on average"
        )


def seconds(work: Callable[..., object], *given: object, rounds: int = 7) -> float:
    """CPU seconds: the least of several rounds."""
    least = math.inf
    for _ in range(rounds):
        began = time.process_time()
        work(*given)
        least = min(least, time.process_time() - began)
    return least


def costs() -> None:
    print(
        "\n| samples | true T | fits of a trial: by NLL, ms | with the prior | 1,000 resamples, ms"
        " |"
    )
    print("|---|---|---|---|---|")
    random = np.random.default_rng(0)
    for samples in (300, 2000, 5000):
        counts = Draws.of(samples, 1000, 0).counts
        for true in (0.01, 0.4, 0.75, 1.5, 3.0):  # the first: every sample is right
            logits, labels = population(samples, random, spread=2.0, true=true)
            fits = (post_hoc.temperature_by_nll, post_hoc.by_temperature)
            of_trial = [
                seconds(post_hoc.cross_fitted, logits, labels, post_hoc.FOLDS, fit) for fit in fits
            ]
            again = seconds(temperatures, logits.numpy(), labels.numpy(), counts)
            print(
                f"| {samples} | {true} |"
                f" {' | '.join(f'{1e3 * each:.2f}' for each in (*of_trial, again))} |",
                flush=True,
            )


def main() -> None:
    words = argparse.ArgumentParser(
        description="What the prior of the temperature fit changes, and what it costs."
    )
    words.add_argument("--draws", type=int, default=200)
    given = words.parse_args()
    torch.set_num_threads(1)
    small_splits(given.draws)
    costs()


if __name__ == "__main__":
    main()
