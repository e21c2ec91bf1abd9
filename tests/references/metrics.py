"""Metrics of logits [N, K] and labels [N]: accuracy, proper scores, binned calibration errors; temperature.

Equal-width bins are right-closed, ((b - 1) / bins, b / bins], as in Guo et al. 2017; the first also holds 0.
"""

import math

from tests.references.arrays import Array, Labels, classes, log_sum_exp, probabilities, rows, top_class


def accuracy(logits: Array, labels: Labels) -> float:
    return _mean(_hits(logits, labels))


def error(logits: Array, labels: Labels) -> float:
    return _mean([1 - hit for hit in _hits(logits, labels)])


def top5_accuracy(logits: Array, labels: Labels) -> float:
    """Share of labels among the five largest logits; of equal logits the lower class number comes first."""
    found = []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        found.append(float(y in sorted(range(len(row)), key=lambda k: (-row[k], k))[:5]))
    return _mean(found)


def nll(logits: Array, labels: Labels) -> float:
    """mean -log p_y from logits, in nats: finite where p_y underflows."""
    return _mean([log_sum_exp(row) - row[y] for row, y in zip(rows(logits), classes(labels), strict=True)])


def brier(logits: Array, labels: Labels) -> float:
    """mean over samples, sum over classes, of (p_k - 1{k = y})^2: in [0, 2]."""
    scores = []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        scores.append(sum((p - (k == y)) ** 2 for k, p in enumerate(probabilities(row))))
    return _mean(scores)


def ece(logits: Array, labels: Labels, bins: int = 15) -> float:
    """sum_b n_b / N * |acc_b - conf_b| over equal-width bins of the top probability."""
    gaps = binned_gaps(_confidences(logits), _hits(logits, labels), bins)
    return sum(share * gap for share, gap in gaps)


def mce(logits: Array, labels: Labels, bins: int = 15) -> float:
    """max_b |acc_b - conf_b| over non-empty equal-width bins."""
    return max(gap for _, gap in binned_gaps(_confidences(logits), _hits(logits, labels), bins))


def classwise_ece(logits: Array, labels: Labels, bins: int = 15) -> float:
    """mean_k of the ECE of p_k against 1{y = k}, over all K classes, seen among the labels or not."""
    table, truth = [probabilities(row) for row in rows(logits)], classes(labels)
    errors = []
    for k in range(len(table[0])):
        gaps = binned_gaps([p[k] for p in table], [float(y == k) for y in truth], bins)
        errors.append(sum(share * gap for share, gap in gaps))
    return _mean(errors)


def adaptive_ece(logits: Array, labels: Labels, bins: int = 15) -> float:
    """ECE over bins of equal mass: sorted by confidence, the first N mod bins bins hold one sample more.

    Equal confidences all go to the bin of the first of them, so that the order of the samples cannot matter.
    """
    confidences, hits = _confidences(logits), _hits(logits, labels)
    order = sorted(range(len(confidences)), key=lambda i: confidences[i])
    planned = [b for b in range(bins) for _ in range(len(order) // bins + (b < len(order) % bins))]
    members: dict[int, list[int]] = {}
    for position, i in enumerate(order):
        first = next(q for q in range(len(order)) if confidences[order[q]] == confidences[i])
        members.setdefault(planned[min(first, position)], []).append(i)
    return sum(abs(sum(hits[i] - confidences[i] for i in group)) for group in members.values()) / len(order)


def binned_gaps(confidences: list[float], hits: list[float], bins: int) -> list[tuple[float, float]]:
    """(n_b / N, |acc_b - conf_b|) of every non-empty bin (lo, hi]; the first bin also holds 0."""
    result = []
    for b in range(1, bins + 1):
        low, high = (b - 1) / bins, b / bins
        inside = [i for i, c in enumerate(confidences) if low < c <= high or (b == 1 and c == 0.0)]
        if inside:
            gap = abs(_mean([hits[i] for i in inside]) - _mean([confidences[i] for i in inside]))
            result.append((len(inside) / len(confidences), gap))
    return result


def fit_temperature(logits: Array, labels: Labels) -> float:
    """T > 0 of least NLL of softmax(z / T); Guo et al. 2017.

    The NLL is convex in 1/T with slope mean_i (sum_k p_k z_k - z_y), so its root is bisected on log T.
    """
    samples = list(zip(rows(logits), classes(labels), strict=True))
    low, high = math.log(1e-4), math.log(1e4)
    for _ in range(80):
        middle = (low + high) / 2
        slope = 0.0
        for row, y in samples:
            p = probabilities([z * math.exp(-middle) for z in row])
            slope += sum(p_k * z for p_k, z in zip(p, row, strict=True)) - row[y]
        if slope > 0:  # 1/T is too large
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _confidences(logits: Array) -> list[float]:
    return [max(probabilities(row)) for row in rows(logits)]


def _hits(logits: Array, labels: Labels) -> list[float]:
    return [float(top_class(row) == y) for row, y in zip(rows(logits), classes(labels), strict=True)]


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
