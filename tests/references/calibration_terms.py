"""Calibration errors that are trained on: smooth ECE, soft-binned ECE, MMCE. c = max_k p_k,
a = 1{top class = y}."""

import math
from typing import Literal

from tests.references.arrays import (
    Array,
    Labels,
    classes,
    mean,
    others,
    probabilities,
    rows,
    sigmoid,
    top_class,
)
from tests.references.losses import cross_entropy


def soft_hit(p: list[float], y: int, tau_a: float) -> float:
    """max(0, 2 - rank), rank = 1 + sum over k != y of sigmoid(tau_a (p_k -
    p_y)); Bohdal et al. 2023."""
    rank = 1 + sum(sigmoid(tau_a * (p_k - p[y])) for p_k in others(p, y))
    return max(0.0, 2 - rank)


def smooth_ece(
    logits: Array,
    labels: Labels,
    bandwidth: float,
    hits: Literal["hard", "soft"] = "hard",
    self_weight: bool = True,
    tau_a: float = 100.0,
) -> float:
    """mean_i |sum_j w_ij a_j - c_i|, w_ij the Gaussian kernel of c_i - c_j, normalised over j.

    Wang & Golebiowski 2024 with Nadaraya-Watson weights. self_weight=False leaves j = i out.
    """
    confidences, accuracies = [], []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        p = probabilities(row)
        confidences.append(max(p))
        accuracies.append(float(top_class(row) == y) if hits == "hard" else soft_hit(p, y, tau_a))
    gaps = []
    for i, c_i in enumerate(confidences):
        neighbours = [j for j in range(len(confidences)) if self_weight or j != i]
        exponents = [-((c_i - confidences[j]) ** 2) / (2 * bandwidth**2) for j in neighbours]
        # Shifted: the nearest neighbour weighs 1.
        weights = [math.exp(e - max(exponents)) for e in exponents]
        smooth = sum(w * accuracies[j] for w, j in zip(weights, neighbours, strict=True)) / sum(
            weights
        )
        gaps.append(abs(smooth - c_i))
    return mean(gaps)


def dece(
    logits: Array,
    labels: Labels,
    bins: int = 15,
    tau_a: float = 100.0,
    tau_b: float = 0.01,
    released: bool = True,
) -> float:
    """sum_b Q_b / N |sum_i q_ib a_i / Q_b - sum_i q_ib c_i / Q_b|, Q_b = sum_i
    q_ib; Bohdal et al. 2023.

    Q_b cancels: what is left of bin b is |sum_i q_ib (a_i - c_i)| / N.
    """
    samples = list(zip(rows(logits), classes(labels), strict=True))
    terms = [soft_gaps(row, y, bins, tau_a, tau_b, released) for row, y in samples]
    return sum(abs(sum(term[b] for term in terms)) for b in range(bins)) / len(terms)


def soft_gaps(
    row: list[float], y: int, bins: int, tau_a: float, tau_b: float, released: bool = True
) -> list[float]:
    """q_b (a - c) of one sample in every bin, a its soft hit."""
    p = probabilities(row)
    gap = soft_hit(p, y, tau_a) - max(p)
    return [q * gap for q in soft_bins(max(p), bins, tau_b, released)]


def soft_bins(confidence: float, bins: int, tau_b: float, released: bool = True) -> list[float]:
    """Shares q_b of the equal-width bins: softmax over b = 1..bins of (b c -
    sum_{m < b} m / bins) / tau_b.

    Each gets 1e-6 and all are divided by 1 + (bins + 1) 1e-6 as in the released code,
    which so sums to 1 - 1e-6;
    released=False divides by 1 + bins * 1e-6.
    """
    scores = [(b * confidence - sum(range(b)) / bins) / tau_b for b in range(1, bins + 1)]
    total = 1 + (bins + released) * 1e-6
    return [(q + 1e-6) / total for q in probabilities(scores)]


def dece_loss(
    logits: Array,
    labels: Labels,
    weight: float,
    bins: int = 15,
    tau_a: float = 100.0,
    tau_b: float = 0.01,
) -> float:
    """Cross-entropy + weight * DECE. On another base: that loss + weight * dece(...)."""
    return cross_entropy(logits, labels) + weight * dece(logits, labels, bins, tau_a, tau_b)


def mmce_squared(logits: Array, labels: Labels, kernel_width: float = 0.4) -> float:
    """mean over pairs i, j (i = j too) of (a_i - c_i) (a_j - c_j) exp(-|c_i - c_j| /
    width); Kumar et al. 2018."""
    right, wrong = _split(logits, labels)
    residuals = [(c, 1 - c) for c in right] + [(c, -c) for c in wrong]
    return mean([r * s * _kernel(c, d, kernel_width) for c, r in residuals for d, s in residuals])


def weighted_mmce_squared(
    logits: Array,
    labels: Labels,
    kernel_width: float = 0.4,
    normalisation: Literal["paper", "released"] = "paper",
) -> float:
    """MMCE_w^2 of Kumar et al. 2018: pairs of right, of wrong and of mixed samples,
    each kind by its own mean.

    "released" divides each mean by its number of pairs (+ 1e-5) once more, as
    the authors' code and its copies do.
    Samples all right or all wrong: 0, as there.
    """
    right, wrong = _split(logits, labels)
    if not right or not wrong:
        return 0.0
    both = mean([(1 - c) * (1 - d) * _kernel(c, d, kernel_width) for c in right for d in right])
    neither = mean([c * d * _kernel(c, d, kernel_width) for c in wrong for d in wrong])
    mixed = mean([(1 - c) * d * _kernel(c, d, kernel_width) for c in right for d in wrong])
    if normalisation == "released":
        both /= len(right) ** 2 + 1e-5
        neither /= len(wrong) ** 2 + 1e-5
        mixed /= len(right) * len(wrong) + 1e-5
    return both + neither - 2 * mixed


def mmce_loss(
    logits: Array,
    labels: Labels,
    weight: float,
    kernel_width: float = 0.4,
    normalisation: Literal["paper", "released"] = "paper",
) -> float:
    """Cross-entropy + weight * sqrt(MMCE_w^2 + 1e-10); cross-entropy alone where all
    are right or all wrong."""
    right, wrong = _split(logits, labels)
    if not right or not wrong:
        return cross_entropy(logits, labels)
    squared = weighted_mmce_squared(logits, labels, kernel_width, normalisation)
    return cross_entropy(logits, labels) + weight * math.sqrt(squared + 1e-10)


def _split(logits: Array, labels: Labels) -> tuple[list[float], list[float]]:
    """Confidences of the right samples, and of the wrong ones."""
    right, wrong = [], []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        (right if top_class(row) == y else wrong).append(max(probabilities(row)))
    return right, wrong


def _kernel(c: float, d: float, width: float) -> float:
    return math.exp(-abs(c - d) / width)
