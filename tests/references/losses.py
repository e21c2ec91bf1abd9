"""Training losses, one sample at a time. Every loss is a mean over samples; of logarithms, in nats.

Where `targets` stands, labels [N] or rows [N, K] of class probabilities will do; where `labels`
stands, the paper defines the loss for labels alone.
"""

import math
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
from numpy.typing import NDArray

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
    softplus,
    target_rows,
)


def cross_entropy(logits: Array, targets: Targets) -> float:
    """mean -sum_k t_k log p_k: -log p_y for labels."""
    samples = rows(logits)
    losses = []
    for row, target in zip(samples, target_rows(targets, len(samples[0])), strict=True):
        losses.append(sum(t * minus_log_p(row, k) for k, t in enumerate(target)))
    return mean(losses)


def brier_loss(logits: Array, targets: Targets) -> float:
    """mean over samples, sum over classes, of (p_k - t_k)^2: in [0, 2]; Brier 1950."""
    samples = rows(logits)
    losses = []
    for row, target in zip(samples, target_rows(targets, len(samples[0])), strict=True):
        p = probabilities(row)
        # p_k - t_k = p_k (1 - t_k) - (1 - p_k) t_k, with 1 - p_k a sum: exact
        # where p_k rounds to 1.
        gaps = [p[k] * (1 - t) - sum(others(p, k)) * t for k, t in enumerate(target)]
        losses.append(sum(gap**2 for gap in gaps))
    return mean(losses)


def focal(logits: Array, labels: Labels, gamma: float | Sequence[float]) -> float:
    """mean -(1 - p_y)^gamma log p_y; Lin et al. 2017, Eq. 4. gamma may differ
    from sample to sample."""
    samples = list(zip(rows(logits), classes(labels), strict=True))
    gammas = [gamma] * len(samples) if isinstance(gamma, int | float) else list(gamma)
    losses = []
    for (row, y), g in zip(samples, gammas, strict=True):
        log_1m = -softplus(row[y] - log_sum_exp(others(row, y)))
        losses.append(math.exp(g * log_1m) * minus_log_p(row, y))
    return mean(losses)


def focal_of_lead(lead: mpmath.mpf, gamma: float) -> mpmath.mpf:
    """The same by the true logit's lead over one other class, at mpmath's precision."""
    rest = 1 / (1 + mpmath.exp(lead))
    return -(rest**gamma) * mpmath.log(1 - rest)


def label_smoothing(logits: Array, targets: Targets, epsilon: float) -> float:
    """Cross-entropy with t = (1 - epsilon) target + epsilon / K; Szegedy et al. 2016, section 7."""
    samples = rows(logits)
    losses = []
    for row, target in zip(samples, target_rows(targets, len(samples[0])), strict=True):
        smooth = [(1 - epsilon) * t + epsilon / len(row) for t in target]
        losses.append(sum(t * minus_log_p(row, k) for k, t in enumerate(smooth)))
    return mean(losses)


def confidence_penalty(logits: Array, targets: Targets, weight: float) -> float:
    """Cross-entropy - weight * mean of H(p), H summed over classes; Pereyra et al. 2017."""
    entropies = []
    for row in rows(logits):
        entropies.append(sum(p * minus_log_p(row, k) for k, p in enumerate(probabilities(row))))
    return cross_entropy(logits, targets) - weight * mean(entropies)


def mbls(logits: Array, targets: Targets, margin: float, weight: float) -> float:
    """Cross-entropy + weight * mean over samples and classes of max(0, max_j z_j - z_k - margin).

    Liu et al. 2022, Eq. 4, averaged over classes as in their released code.
    """
    violations = [max(0.0, max(row) - z - margin) for row in rows(logits) for z in row]
    return cross_entropy(logits, targets) + weight * mean(violations)


def mixup(
    base: Callable[[Array, Labels], float],
    logits: Array,
    labels: Labels,
    lam: float,
    permutation: Sequence[int],
) -> float:
    """lam base(z, y) + (1 - lam) base(z, y[permutation]), z the logits of the mixed
    inputs; Zhang et al. 2018."""
    return lam * base(logits, labels) + (1 - lam) * base(logits, labels[list(permutation)])


def mixed_inputs(inputs: Array, lam: float, permutation: Sequence[int]) -> NDArray[np.float64]:
    """lam x_i + (1 - lam) x_permutation[i] of inputs [N, ...]."""
    x = np.asarray(inputs, dtype=np.float64)
    return np.stack([lam * x[i] + (1 - lam) * x[j] for i, j in enumerate(permutation)])
