"""CPU seconds of `calstudy.evaluate` with intervals, beside the same metrics without them.

    python -m benchmarks.experiments.evaluate --rounds 3

An over-confident model of ten classes, whose labels are drawn from its probabilities at a
temperature of 1.5. Ten million additions in a Python loop say how fast the machine just was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import calstudy

SIZES = (2_000, 100_000)
CLASSES = 10


def cpu(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def additions() -> None:
    total = 0
    for number in range(10_000_000):
        total += number


def drawn(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits [N, 10] and labels [N]."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(samples, CLASSES)) * 3
    odds = np.exp(logits / 1.5)
    chances = (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)
    return logits, (chances > random.random((samples, 1))).argmax(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    logits, labels = drawn(SIZES[0], asked.seed)
    calstudy.evaluate(labels, logits=logits)  # what is imported once
    for _ in range(asked.rounds):
        print(f"ten million additions: {cpu(additions):.2f} CPU s")
        for size in SIZES:
            logits, labels = drawn(size, asked.seed)
            values = cpu(lambda: calstudy.evaluate(labels, logits=logits, intervals=False))  # noqa: B023
            both = cpu(lambda: calstudy.evaluate(labels, logits=logits))  # noqa: B023
            print(
                f"{size:,} x {CLASSES}: {both:.2f} CPU s with intervals, {values:.2f} without"
                f" ({both / values:.1f} times)"
            )


if __name__ == "__main__":
    main()
