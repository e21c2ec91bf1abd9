"""Losses of 2019 and later, one sample at a time, from their papers' formulas; in nats."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.references.arrays import (
    Array,
    Labels,
    Targets,
    classes,
    log_sum_exp,
    mean,
    minus_log_p,
    others,
    probabilities,
    rows,
    top_class,
)
from tests.references.losses import cross_entropy, mixup


def dual_focal(logits: Array, labels: Labels, gamma: float) -> float:
    """mean -(1 - p_y + p_j)^gamma log p_y, p_j = max {p_k : p_k < p_y}, 0 of none; Tao et al. 2023.

    1 - p_y + p_j is a sum over the other classes: exact where p_y rounds to 1.
    """
    losses = []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        lower = [z for z in row if z < row[y]]
        log_factor = log_sum_exp(others(row, y) + ([max(lower)] if lower else [])) - log_sum_exp(
            row
        )
        losses.append(math.exp(gamma * log_factor) * minus_log_p(row, y))
    return mean(losses)


def inverse_focal(logits: Array, labels: Labels, gamma: float) -> float:
    """mean -(1 + p_y)^gamma log p_y; Wang et al. 2021."""
    losses = []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        losses.append((1 + probabilities(row)[y]) ** gamma * minus_log_p(row, y))
    return mean(losses)


def mdca(logits: Array, labels: Labels) -> float:
    """(1 / K) sum_k |mean_n p_nk - mean_n 1{y_n = k}|; Hebbalaguppe et al. 2022."""
    samples = [probabilities(row) for row in rows(logits)]
    gaps = []
    for k in range(len(samples[0])):
        share = mean([float(y == k) for y in classes(labels)])
        gaps.append(abs(mean([p[k] for p in samples]) - share))
    return mean(gaps)


def dca(logits: Array, labels: Labels) -> float:
    """|mean confidence - accuracy|; Liang et al. 2020."""
    return abs(mean([-gap for gap, _ in _gaps(logits, labels)]))


def esd(logits: Array, labels: Labels) -> float:
    """mean_i m_i^2 - s_i^2 / (N - 1), the mean and the sample variance over j != i of (a_j - c_j)
    1{c_j <= c_i}; Yoon et al. 2023."""
    pairs = _gaps(logits, labels)
    found = []
    for i, (_, c_i) in enumerate(pairs):
        values = [gap * (c_j <= c_i) for j, (gap, c_j) in enumerate(pairs) if j != i]
        middle = mean(values)
        variance = sum((value - middle) ** 2 for value in values) / (len(values) - 1)
        found.append(middle**2 - variance / len(values))
    return mean(found)


def _gaps(logits: Array, labels: Labels) -> list[tuple[float, float]]:
    """Hit less confidence, and confidence, of each sample."""
    found = []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        confidence = max(probabilities(row))
        found.append((float(top_class(row) == y) - confidence, confidence))
    return found


def logit_norm(logits: Array, targets: Targets, temperature: float) -> float:
    """Cross-entropy of z / (temperature (|z| + 1e-7)); Wei et al. 2022."""
    scaled = []
    for row in rows(logits):
        length = temperature * (math.sqrt(math.fsum(z * z for z in row)) + 1e-7)
        scaled.append([z / length for z in row])
    return cross_entropy(np.array(scaled), targets)


def acls(
    logits: Array,
    targets: Targets,
    weight: float,
    positive: float,
    negative: float,
    margin: float,
    on_distance: bool = False,
) -> float:
    """Cross-entropy + weight (positive mean_n relu(z_max - m)^2 + negative mean_{n, k not max}
    relu(z_max - z_k - m)^2); Park et al. 2023. on_distance: z_max - min_k z_k in the first."""
    first, second = [], []
    for row in rows(logits):
        top = max(row)
        lowest = min(row) if on_distance else 0.0
        first.append(max(0.0, top - lowest - margin) ** 2)
        rest = others(row, top_class(row))
        second += [max(0.0, top - z - margin) ** 2 for z in rest]
    penalty = positive * mean(first) + negative * mean(second)
    return cross_entropy(logits, targets) + weight * penalty


def reg_mixup(
    base: Callable[[Array, Labels], float],
    logits: Array,
    of_mixed: Array,
    labels: Labels,
    lam: float,
    permutation: Sequence[int],
) -> float:
    """Half of base(z, y) + mixup of z', the logits of the mixed inputs; Pinto et al. 2022."""
    return (base(logits, labels) + mixup(base, of_mixed, labels, lam, permutation)) / 2
