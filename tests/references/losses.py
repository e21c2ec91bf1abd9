"""Training losses, one sample at a time. Every loss is a mean over samples, in nats."""

import math
from collections.abc import Sequence
from typing import Literal

from tests.references.arrays import (
    Array,
    Labels,
    classes,
    log_sum_exp,
    others,
    probabilities,
    rows,
    sigmoid,
    softplus,
    top_class,
)


def cross_entropy(logits: Array, labels: Labels) -> float:
    """mean -log p_y."""
    return _mean([_minus_log_p(row, y) for row, y in zip(rows(logits), classes(labels), strict=True)])


def focal(logits: Array, labels: Labels, gamma: float | Sequence[float]) -> float:
    """mean -(1 - p_y)^gamma log p_y; Lin et al. 2017, Eq. 4. gamma may differ from sample to sample."""
    samples = list(zip(rows(logits), classes(labels), strict=True))
    gammas = [gamma] * len(samples) if isinstance(gamma, int | float) else list(gamma)
    losses = []
    for (row, y), g in zip(samples, gammas, strict=True):
        log_1m = -softplus(row[y] - log_sum_exp(others(row, y)))
        losses.append(math.exp(g * log_1m) * _minus_log_p(row, y))
    return _mean(losses)


def label_smoothing(logits: Array, labels: Labels, epsilon: float) -> float:
    """mean -sum_k t_k log p_k with t = (1 - epsilon) onehot + epsilon / K; Szegedy et al. 2016, section 7."""
    losses = []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        target = [epsilon / len(row) + (1 - epsilon) * (k == y) for k in range(len(row))]
        losses.append(sum(t * _minus_log_p(row, k) for k, t in enumerate(target)))
    return _mean(losses)


def mbls(logits: Array, labels: Labels, margin: float, weight: float) -> float:
    """Cross-entropy + weight * mean over samples and classes of max(0, max_j z_j - z_k - margin).

    Liu et al. 2022, Eq. 4, averaged over classes as in their released code.
    """
    violations = [max(0.0, max(row) - z - margin) for row in rows(logits) for z in row]
    return cross_entropy(logits, labels) + weight * _mean(violations)


def smooth_ece(
    logits: Array,
    labels: Labels,
    bandwidth: float,
    hits: Literal["hard", "soft"] = "hard",
    self_weight: bool = True,
    tau_a: float = 100.0,
) -> float:
    """mean_i |sum_j w_ij a_j - c_i|, w_ij the Gaussian kernel of c_i - c_j, normalised over j.

    Wang & Golebiowski 2024 with Nadaraya-Watson weights. Soft hits: Bohdal et al. 2023, rank of the true class
    by sigmoids of steepness tau_a, hit = max(0, 2 - rank). self_weight=False leaves j = i out.
    """
    confidences, accuracies = [], []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        p = probabilities(row)
        confidences.append(max(p))
        rank = 1 + sum(sigmoid(tau_a * (p_k - p[y])) for p_k in others(p, y))
        accuracies.append(float(top_class(row) == y) if hits == "hard" else max(0.0, 2 - rank))
    gaps = []
    for i, c_i in enumerate(confidences):
        neighbours = [j for j in range(len(confidences)) if self_weight or j != i]
        exponents = [-((c_i - confidences[j]) ** 2) / (2 * bandwidth**2) for j in neighbours]
        weights = [math.exp(e - max(exponents)) for e in exponents]  # shifted: the nearest neighbour weighs 1
        smooth = sum(w * accuracies[j] for w, j in zip(weights, neighbours, strict=True)) / sum(weights)
        gaps.append(abs(smooth - c_i))
    return _mean(gaps)


def _minus_log_p(row: list[float], k: int) -> float:
    return softplus(log_sum_exp(others(row, k)) - row[k])


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
