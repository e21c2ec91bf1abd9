"""Metrics of logits [N, K] and labels [N]: accuracy, proper scores, calibration errors;
OoD scores; temperature.

Equal-width bins are right-closed, ((b - 1) / bins, b / bins], as in Guo et al.
2017; the first also holds 0.
"""

import math
import operator
from collections.abc import Callable

import numpy as np

from tests.references.arrays import (
    Array,
    Labels,
    classes,
    log_sum_exp,
    probabilities,
    rows,
    top_class,
)


def accuracy(logits: Array, labels: Labels) -> float:
    return _mean(_hits(logits, labels))


def error(logits: Array, labels: Labels) -> float:
    return _mean([1 - hit for hit in _hits(logits, labels)])


def top5_accuracy(logits: Array, labels: Labels) -> float:
    """Share of labels among the five largest logits; of equal logits the lower
    class number comes first."""
    found = []
    for row, y in zip(rows(logits), classes(labels), strict=True):
        found.append(float(y in sorted(range(len(row)), key=lambda k: (-row[k], k))[:5]))
    return _mean(found)


def miou(logits: Array, labels: Labels, first: int = 0) -> float:
    """Mean over classes of |both| / |either|, of the rows predicted as the class and those that
    are; classes without such rows, and those before `first`, are left out. nan without any."""
    predicted = [top_class(row) for row in rows(logits)]
    truth = classes(labels)
    found = []
    for k in range(first, np.asarray(logits).shape[1]):
        ours = {i for i, each in enumerate(predicted) if each == k}
        theirs = {i for i, each in enumerate(truth) if each == k}
        if ours | theirs:
            found.append(len(ours & theirs) / len(ours | theirs))
    return _mean(found) if found else math.nan


def miou_without_0(logits: Array, labels: Labels) -> float:
    """Classes 1 to K - 1, as MbLS's code for VOC has it."""
    return miou(logits, labels, first=1)


def nll(logits: Array, labels: Labels) -> float:
    """mean -log p_y from logits, in nats: finite where p_y underflows."""
    return _mean(
        [log_sum_exp(row) - row[y] for row, y in zip(rows(logits), classes(labels), strict=True)]
    )


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


def mce(logits: Array, labels: Labels, bins: int = 15, min_count: int = 1) -> float:
    """max_b |acc_b - conf_b| over equal-width bins of that many samples."""
    gaps = binned_gaps(_confidences(logits), _hits(logits, labels), bins)
    return max(
        (gap for share, gap in gaps if round(share * len(labels)) >= min_count), default=math.nan
    )


def mce_of_ten(logits: Array, labels: Labels, bins: int = 15) -> float:
    return mce(logits, labels, bins, 10)


def ace_unweighted(logits: Array, labels: Labels, bins: int = 15) -> float:
    """mean over non-empty equal-width bins of |acc_b - conf_b|."""
    return _mean([gap for _, gap in binned_gaps(_confidences(logits), _hits(logits, labels), bins)])


def rmsce(logits: Array, labels: Labels, bins: int = 15) -> float:
    """sqrt of sum_b n_b / N * (acc_b - conf_b)^2 over equal-width bins."""
    gaps = binned_gaps(_confidences(logits), _hits(logits, labels), bins)
    return math.sqrt(sum(share * gap**2 for share, gap in gaps))


def l2(logits: Array, labels: Labels, bins: int = 15) -> float:
    """sqrt of sum_b n_b / N * (acc_b - conf_b)^2 over equal-mass bins."""
    c, a = _confidences(logits), _hits(logits, labels)
    groups = equal_mass_groups(c, bins)
    return math.sqrt(sum(len(g) / len(c) * _mean([a[i] - c[i] for i in g]) ** 2 for g in groups))


def debiased_l2(logits: Array, labels: Labels, bins: int = 15) -> float:
    """Kumar et al. 2019: the plug-in square of each equal-mass bin less the
    variance of its mean label."""
    return math.sqrt(_floored(_debiased_square(_confidences(logits), _hits(logits, labels), bins)))


def debiased_l2_marginal(logits: Array, labels: Labels, bins: int = 15) -> float:
    """sqrt of the mean over classes of that square, each 0 at least."""
    table, truth = [probabilities(row) for row in rows(logits)], classes(labels)
    squares = []
    for k in range(len(table[0])):
        squares.append(
            _floored(_debiased_square([p[k] for p in table], [float(y == k) for y in truth], bins))
        )
    return math.sqrt(_mean(squares))


def _debiased_square(values: list[float], outcomes: list[float], bins: int) -> float:
    total, samples = 0.0, 0
    for group in equal_mass_groups(values, bins):
        n = len(group)
        if n < 2:
            continue
        frequency = _mean([outcomes[i] for i in group])
        gap = _mean([values[i] for i in group]) - frequency
        total += n * (gap**2 - frequency * (1 - frequency) / (n - 1))
        samples += n
    return total / samples if samples else math.nan


def _floored(square: float) -> float:
    return square if math.isnan(square) else max(0.0, square)


def share_above_99(logits: Array, labels: Labels) -> float:
    return _mean([float(c > 0.99) for c in _confidences(logits)])


def accuracy_above_99(logits: Array, labels: Labels) -> float:
    sure = [
        hit for c, hit in zip(_confidences(logits), _hits(logits, labels), strict=True) if c > 0.99
    ]
    return _mean(sure) if sure else math.nan


def classwise_ece(logits: Array, labels: Labels, bins: int = 15) -> float:
    """mean_k of the ECE of p_k against 1{y = k}, over all K classes, seen
    among the labels or not."""
    table, truth = [probabilities(row) for row in rows(logits)], classes(labels)
    errors = []
    for k in range(len(table[0])):
        gaps = binned_gaps([p[k] for p in table], [float(y == k) for y in truth], bins)
        errors.append(sum(share * gap for share, gap in gaps))
    return _mean(errors)


def thresholded_classwise_ece(logits: Array, labels: Labels, bins: int = 15) -> float:
    """The same over p_k > .01 alone; the mean is over the classes that have such samples."""
    table, truth = [probabilities(row) for row in rows(logits)], classes(labels)
    errors = []
    for k in range(len(table[0])):
        kept = [(p[k], float(y == k)) for p, y in zip(table, truth, strict=True) if p[k] > 0.01]
        if kept:
            gaps = binned_gaps([p for p, _ in kept], [hit for _, hit in kept], bins)
            errors.append(sum(share * gap for share, gap in gaps))
    return _mean(errors) if errors else math.nan


def google_adaptive(
    logits: Array, labels: Labels, bins: int = 15, edge_at_one: bool = False
) -> float:
    """General calibration error of the top label, adaptive bins; Nixon et al. 2019 and their
    code."""
    return _google_error(_confidences(logits), _hits(logits, labels), bins, edge_at_one)


def google_tace(logits: Array, labels: Labels, bins: int = 15, edge_at_one: bool = False) -> float:
    """The mean over all classes of the same over p_k > .01; a class without any has no error."""
    table, truth = [probabilities(row) for row in rows(logits)], classes(labels)
    errors = []
    for k in range(len(table[0])):
        kept = [(p[k], float(y == k)) for p, y in zip(table, truth, strict=True) if p[k] > 0.01]
        errors.append(
            _google_error([p for p, _ in kept], [hit for _, hit in kept], bins, edge_at_one)
            if kept
            else 0.0
        )
    return _mean(errors)


def _google_error(values: list[float], hits: list[float], bins: int, edge_at_one: bool) -> float:
    """Bins [lo, hi) that start at equally spaced ranks of the sorted values; the first and
    the last are unbounded."""
    starts = np.round(np.linspace(0, len(values), bins, endpoint=False)).astype(int)
    ordered = sorted(values)
    edges = [ordered[min(start, len(values) - 1)] for start in starts][1:] + [1.0] * edge_at_one
    gaps: dict[int, float] = {}
    for value, hit in zip(values, hits, strict=True):
        b = sum(value >= edge for edge in edges)
        gaps[b] = gaps.get(b, 0.0) + hit - value
    return sum(abs(gap) for gap in gaps.values()) / len(values)


def brier_calibration(logits: Array, labels: Labels, bins: int = 15) -> float:
    """sum over classes and equal-width bins of n / N * (mean p - frequency)^2."""
    return sum(len(r) * _mean(r) ** 2 for r in _binned_residuals(logits, labels, bins)) / len(
        labels
    )


def brier_refinement(logits: Array, labels: Labels, bins: int = 15) -> float:
    """sum over classes and equal-width bins of n / N * the variance of p - 1{k = y} in the bin."""
    found = _binned_residuals(logits, labels, bins)
    return sum(sum((x - _mean(r)) ** 2 for x in r) for r in found) / len(labels)


def _binned_residuals(logits: Array, labels: Labels, bins: int) -> list[list[float]]:
    table, truth = [probabilities(row) for row in rows(logits)], classes(labels)
    found: dict[tuple[int, int], list[float]] = {}
    for p, y in zip(table, truth, strict=True):
        for k, value in enumerate(p):
            b = next(b for b in range(1, bins + 1) if value <= b / bins or b == bins)
            found.setdefault((k, b), []).append(value - (k == y))
    return list(found.values())


def adaptive_ece(logits: Array, labels: Labels, bins: int = 15) -> float:
    """ECE over bins of equal mass: sorted by confidence, the first N mod bins
    bins hold one sample more.

    Equal confidences all go to the bin of the first of them, so that the order
    of the samples cannot matter.
    """
    confidences, hits = _confidences(logits), _hits(logits, labels)
    groups = equal_mass_groups(confidences, bins)
    return sum(abs(sum(hits[i] - confidences[i] for i in group)) for group in groups) / len(
        confidences
    )


def equal_mass_groups(values: list[float], bins: int) -> list[list[int]]:
    """The samples of each bin that holds any."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    planned = [b for b in range(bins) for _ in range(len(order) // bins + (b < len(order) % bins))]
    members: dict[int, list[int]] = {}
    for position, i in enumerate(order):
        first = next(q for q in range(len(order)) if values[order[q]] == values[i])
        members.setdefault(planned[min(first, position)], []).append(i)
    return list(members.values())


def ece_sweep(logits: Array, labels: Labels) -> float:
    """Roelofs et al. 2022, Algorithm 1, equal-mass bins: the most bins before
    accuracy falls somewhere."""
    c = _confidences(logits)
    return _swept(c, _hits(logits, labels), lambda bins: equal_mass_groups(c, bins))


def ece_sweep_equal_width(logits: Array, labels: Labels) -> float:
    c = _confidences(logits)

    def groups(bins: int) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for i, value in enumerate(c):
            b = next(b for b in range(1, bins + 1) if value <= b / bins or b == bins)
            found.setdefault(b, []).append(i)
        return [found[b] for b in sorted(found)]

    return _swept(c, _hits(logits, labels), groups)


def _swept(c: list[float], a: list[float], groups: Callable[[int], list[list[int]]]) -> float:
    best = groups(1)
    for bins in range(2, len(c) + 1):
        found = groups(bins)
        accuracies = [_mean([a[i] for i in group]) for group in found]
        if accuracies != sorted(accuracies):
            break
        best = found
    return sum(abs(sum(a[i] - c[i] for i in group)) for group in best) / len(c)


def smooth_ece_at(logits: Array, labels: Labels, sigma: float, points: int = 4000) -> float:
    """integral over t in [0, 1] of |mean_i (a_i - c_i) K(t, c_i)|, K a Gaussian and its
    mirror images at 0 and 1.

    By the midpoint rule, from the density itself.
    """
    c, a = _confidences(logits), _hits(logits, labels)
    weight = {
        value: sum(h - v for v, h in zip(c, a, strict=True) if v == value) / len(c) for value in c
    }
    t = (np.arange(points) + 0.5) / points
    smoothed = np.zeros(points)
    for value, residual in weight.items():
        for image in range(-3, 4):
            for centre in (value + 2 * image, -value + 2 * image):
                smoothed += (
                    residual
                    * np.exp(-((t - centre) ** 2) / (2 * sigma**2))
                    / (sigma * math.sqrt(2 * math.pi))
                )
    return float(np.abs(smoothed).mean())


def skce_pairs(logits: Array, labels: Labels) -> list[list[float]]:
    """h_ij = exp(-|p_i - p_j| / .5) (e_yi - p_i) . (e_yj - p_j); Widmann et al. 2019."""
    table, truth = [probabilities(row) for row in rows(logits)], classes(labels)
    residuals = [[(k == y) - v for k, v in enumerate(p)] for p, y in zip(table, truth, strict=True)]
    return _pairs(table, residuals, 0.5)


def top_label_pairs(logits: Array, labels: Labels) -> list[list[float]]:
    """h_ij = exp(-|c_i - c_j| / .4) (a_i - c_i) (a_j - c_j); Kumar et al. 2018."""
    c, a = _confidences(logits), _hits(logits, labels)
    return _pairs(
        [[value] for value in c], [[hit - value] for hit, value in zip(a, c, strict=True)], 0.4
    )


def _pairs(
    points: list[list[float]], residuals: list[list[float]], scale: float
) -> list[list[float]]:
    return [
        [
            math.exp(-math.dist(p, q) / scale) * sum(map(operator.mul, r, s))
            for q, s in zip(points, residuals, strict=True)
        ]
        for p, r in zip(points, residuals, strict=True)
    ]


def biased(pairs: list[list[float]]) -> float:
    return _mean([h for row in pairs for h in row])


def unbiased(pairs: list[list[float]]) -> float:
    different = [h for i, row in enumerate(pairs) for j, h in enumerate(row) if i != j]
    return _mean(different) if different else math.nan


def linear(pairs: list[list[float]]) -> float:
    disjoint = [pairs[i][i + 1] for i in range(0, len(pairs) - 1, 2)]
    return _mean(disjoint) if disjoint else math.nan


def auroc(inside: list[float], outside: list[float]) -> float:
    """P(outside > inside) + P(outside = inside) / 2."""
    return _mean([float(o > i) + 0.5 * (o == i) for o in outside for i in inside])


def fpr_at_95(inside: list[float], outside: list[float]) -> float:
    """The least share of `inside` at or above a threshold that at least 95 in
    100 of `outside` reach."""
    found = []
    for threshold in outside:
        if 100 * sum(o >= threshold for o in outside) >= 95 * len(outside):
            found.append(_mean([float(i >= threshold) for i in inside]))
    return min(found)


def binned_gaps(
    confidences: list[float], hits: list[float], bins: int
) -> list[tuple[float, float]]:
    """(n_b / N, |acc_b - conf_b|) of every non-empty bin (lo, hi]; the first bin also holds 0."""
    result = []
    for b in range(1, bins + 1):
        low, high = (b - 1) / bins, b / bins
        inside = [i for i, c in enumerate(confidences) if low < c <= high or (b == 1 and c == 0.0)]
        if inside:
            gap = abs(_mean([hits[i] for i in inside]) - _mean([confidences[i] for i in inside]))
            result.append((len(inside) / len(confidences), gap))
    return result


def fit_temperature(logits: Array, labels: Labels, prior: float = 0.0) -> float:
    """T > 0 of least NLL of softmax(z / T); Guo et al. 2017.

    The NLL is convex in 1/T with slope mean_i (sum_k p_k z_k - z_y), so its
    root is bisected on log T. prior: times (log T)^2 / 2 are added to the sum of NLL, which then
    may have two minima: one of them.
    """
    samples = list(zip(rows(logits), classes(labels), strict=True))
    low, high = math.log(1e-4), math.log(1e4)
    for _ in range(80):
        middle = (low + high) / 2
        slope = 0.0
        for row, y in samples:
            p = probabilities([z * math.exp(-middle) for z in row])
            slope += sum(p_k * z for p_k, z in zip(p, row, strict=True)) - row[y]
        if slope * math.exp(-middle) > prior * middle:  # 1/T is too large
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


LOG_T = np.linspace(math.log(0.01), math.log(1000), 11514)  # a step of .001


def cost_of_temperature(logits: Array, labels: Labels, temperature: float) -> float:
    """Sum of NLL of softmax(z / T), plus (log T)^2 / 2 of a normal prior on log T."""
    total = math.log(temperature) ** 2 / 2
    for row, y in zip(rows(logits), classes(labels), strict=True):
        scaled = np.array([z / temperature for z in row])
        total += scaled.max() + math.log(np.exp(scaled - scaled.max()).sum()) - scaled[y]
    return float(total)


def costs_of_temperatures(logits: Array, labels: Labels) -> np.ndarray:
    """`cost_of_temperature` on LOG_T."""
    z, y = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    costs = []
    for log_t in LOG_T:
        scaled = z / math.exp(log_t)
        most = scaled.max(axis=1)
        nll = (
            most + np.log(np.exp(scaled - most[:, None]).sum(axis=1)) - scaled[np.arange(len(y)), y]
        )
        costs.append(math.fsum(nll) + log_t**2 / 2)
    return np.array(costs)


def fit_temperature_with_prior(logits: Array, labels: Labels) -> tuple[float, float]:
    """The T of least cost on the grid, and that cost."""
    costs = costs_of_temperatures(logits, labels)
    return math.exp(LOG_T[costs.argmin()]), float(costs.min())


def fit_temperature_by_ece(logits: Array, labels: Labels, bins: int = 15) -> float:
    """T of .1, .2, ..., 10.0 of least ECE, strictly less than those before; Mukhoti et al. 2020."""
    z = np.asarray(logits, dtype=np.float64)
    errors = {step / 10: ece(z / (step / 10), labels, bins) for step in range(1, 101)}
    return min(errors, key=lambda temperature: (errors[temperature], temperature))


def _confidences(logits: Array) -> list[float]:
    return [max(probabilities(row)) for row in rows(logits)]


def _hits(logits: Array, labels: Labels) -> list[float]:
    return [
        float(top_class(row) == y) for row, y in zip(rows(logits), classes(labels), strict=True)
    ]


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
