"""Which samples an epoch trains on; Tata et al. 2022. A score is larger where
the network is less sure.

Their code's scores are kept from the epoch that last trained a sample: those
of unselected samples are stale.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.references.arrays import Array, minus_log_p, probabilities, rows


def entropies(logits: Array) -> list[float]:
    """-sum_k p_k log p_k of every sample, in nats."""
    return [
        sum(p * minus_log_p(row, k) for k, p in enumerate(probabilities(row)))
        for row in rows(logits)
    ]


def normalized_entropies(logits: Array) -> list[float]:
    """-sum_k p_k log(p_k + 1e-6) / log K, as in the released code: in [0, 1]
    up to 1e-6 K / log K."""
    return [
        -sum(p * math.log(p + 1e-6) for p in probabilities(row)) / math.log(len(row))
        for row in rows(logits)
    ]


def least_confidences(logits: Array) -> list[float]:
    """1 - max_k p_k."""
    return [1 - max(probabilities(row)) for row in rows(logits)]


def margins(logits: Array) -> list[float]:
    """1 - (p_1 - p_2), the two largest probabilities: 1 where they tie."""
    scores = []
    for row in rows(logits):
        first, second, *_ = sorted(probabilities(row), reverse=True)
        scores.append(1 - (first - second))
    return scores


def top(scores: Sequence[float], count: int) -> list[int]:
    """Indices of the `count` largest scores, largest first; of equal scores
    the lower index comes first."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]


def random_choice(samples: int, count: int, generator: np.random.Generator) -> list[int]:
    """`count` distinct indices, every set of them as likely as any other."""
    return [int(i) for i in generator.permutation(samples)[:count]]


def selections(
    score: Callable[[int, int], float],
    samples: int,
    count: int,
    warmup: int,
    epochs: int,
    refresh_all: bool = False,
) -> list[list[int]]:
    """The samples of each epoch: all of them for `warmup` >= 1 epochs, then the `count`
    of the largest kept scores.

    score(epoch, i) is what the epoch's pass over sample i says. It replaces the kept score
    of the samples trained in
    that epoch; with refresh_all, of every sample. The choice falls before the epoch, so
    on scores of earlier ones.
    """
    kept = [math.nan] * samples
    chosen = []
    for epoch in range(epochs):
        trained = list(range(samples)) if epoch < warmup else top(kept, count)
        chosen.append(trained)
        for i in range(samples) if refresh_all else trained:
            kept[i] = score(epoch, i)
    return chosen
