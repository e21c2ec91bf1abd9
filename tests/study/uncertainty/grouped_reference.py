"""Resampling of groups by its slow definition: each resample's rows are written out.

Plain NumPy and SciPy, from docs/uncertainty.md as it was at 1a2c335a, and never from the code that
is checked.
"""

import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import norm
from scipy.stats import t as student

BINS = 15
FOLDS = 5
LOG_T = (math.log(0.01), math.log(1000))


def rows_of(groups, drawn):
    """The rows of a resample: those of group g as often as drawn[g], one group after another."""
    parts = []
    for group, times in enumerate(drawn):
        members = np.flatnonzero(groups == group)
        parts += [members] * int(times)
    return np.concatenate(parts)


# ---- one row -------------------------------------------------------------------------------------


def probabilities(logits):
    return np.exp(log_softmax(logits, axis=1))


def top_label(logits, labels):
    """Confidence [N] and whether it is right [N]."""
    probs = probabilities(logits)
    return probs.max(axis=1), (logits.argmax(axis=1) == labels).astype(float)


def width_bin(values):
    """Equal-width bins (lo, hi]; the first also holds 0."""
    found = np.zeros(np.shape(values), dtype=int)
    for number in range(1, BINS):
        found[np.asarray(values) > number / BINS] = number
    return found


def mass_bin(confidence):
    """Bins of as many rows each, the first ones of one more; no two confidences are equal."""
    found = np.empty(len(confidence), dtype=int)
    for number, members in enumerate(np.array_split(np.argsort(confidence), BINS)):
        found[members] = number
    return found


def mass_edges(confidence):
    """The lowest confidence of each equal-mass bin after the first."""
    bins = mass_bin(confidence)
    return np.array([confidence[bins == number].min() for number in range(1, BINS)])


def class_cells(logits, labels):
    """The cell [N, K] of each probability, one for each bin and class, and its residual [N, K]."""
    probs = probabilities(logits)
    truth = np.eye(probs.shape[1])[labels]
    return width_bin(probs) + BINS * np.arange(probs.shape[1]), truth - probs


# ---- metrics -------------------------------------------------------------------------------------


def gaps(bins, residuals, cells=BINS):
    """The sum of residuals in each bin."""
    return np.array([residuals[bins == number].sum() for number in range(cells)])


def miou(logits, labels, first=0):
    """The mean of intersection / union over the classes from `first` on that have a union."""
    predicted = logits.argmax(axis=1)
    shares = []
    for k in range(first, logits.shape[1]):
        union = np.sum((predicted == k) | (labels == k))
        if union:
            shares.append(np.sum((predicted == k) & (labels == k)) / union)
    return np.mean(shares) if shares else math.nan


def measured(logits, labels, mass):
    """Each metric of these rows. mass: the equal-mass bin of each, by the edges of the sample."""
    rows = len(labels)
    classes = logits.shape[1]
    confidence, hits = top_label(logits, labels)
    residuals = hits - confidence
    width = width_bin(confidence)
    truth = np.eye(classes)[labels]
    better = (logits > logits[np.arange(rows), labels][:, None]).sum(axis=1)
    cells, by_class = class_cells(logits, labels)
    return {
        "accuracy": hits.mean(),
        "error": 1 - hits.mean(),
        "top5_accuracy": (better < 5).mean(),
        "nll": -log_softmax(logits, axis=1)[np.arange(rows), labels].mean(),
        "brier": ((probabilities(logits) - truth) ** 2).sum(axis=1).mean(),
        "ece": np.abs(gaps(width, residuals)).sum() / rows,
        "mce": max(abs(residuals[width == b].mean()) for b in set(width)),
        "adaptive_ece": np.abs(gaps(mass, residuals)).sum() / rows,
        "classwise_ece": np.abs(gaps(cells, by_class, BINS * classes)).sum() / rows / classes,
        "miou": miou(logits, labels),
        "miou_without_0": miou(logits, labels, first=1),
    }


def resampled(logits, labels, groups, counts, mass):
    """Each metric [B] of each resample. counts: [G, B]."""
    values = []
    for drawn in counts.T:
        rows = rows_of(groups, drawn)
        values.append(measured(logits[rows], labels[rows], mass[rows]))
    return {name: np.array([one[name] for one in values]) for name in values[0]}


# ---- temperatures --------------------------------------------------------------------------------


def fitted_log_t(logits, labels):
    """log T of the least sum of NLL plus (log T)^2 / 2: the best cell of a grid, then refined."""

    def cost(log_t):
        scaled = log_softmax(logits / math.exp(log_t), axis=1)
        return -scaled[np.arange(len(labels)), labels].sum() + log_t**2 / 2

    grid = np.linspace(*LOG_T, 70)
    best = int(np.argmin([cost(log_t) for log_t in grid]))
    ends = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    return float(minimize_scalar(cost, bounds=ends, method="bounded", options={"xatol": 1e-9}).x)


def cross_fitted(logits, labels, groups, rows):
    """The logits of the rows, at temperatures from the other folds' rows, and log T by fold."""
    fold = groups[rows] % FOLDS
    scaled = np.full((len(rows), logits.shape[1]), np.nan)
    log_ts = {}
    for number in sorted(set(fold)):
        others = rows[fold != number]
        log_ts[number] = fitted_log_t(logits[others], labels[others])
        scaled[fold == number] = logits[rows[fold == number]] / math.exp(log_ts[number])
    return scaled, log_ts


# ---- perfect calibration -------------------------------------------------------------------------


def signed_errors(logits, labels, groups, signs):
    """Each calibration error [B] if a group's residuals are worth their sign. signs: [G, B].

    Over all bins and signs, their squares are on average at least those of independent labels.
    """
    rows = len(labels)
    classes = logits.shape[1]
    confidence, hits = top_label(logits, labels)
    width = width_bin(confidence)
    mass = mass_bin(confidence)
    cells, by_class = class_cells(logits, labels)
    probs = probabilities(logits)
    of_top = (confidence * (1 - confidence)).sum()
    of_classes = (probs * (1 - probs)).sum()

    def signed(bins, residuals, number, expected):
        drawn = [gaps(bins, (residuals.T * sign[groups]).T, number) for sign in signs.T]
        square = np.mean([(sums**2).sum() for sums in drawn])
        return np.abs(drawn) * max(1, math.sqrt(expected / square))

    of_width = signed(width, hits - confidence, BINS, of_top)
    of_mass = signed(mass, hits - confidence, BINS, of_top)
    of_cells = signed(cells, by_class, BINS * classes, of_classes)
    counts = np.array([max((width == number).sum(), 1) for number in range(BINS)])
    return {
        "ece": of_width.sum(axis=1) / rows,
        "mce": (of_width / counts).max(axis=1),
        "adaptive_ece": of_mass.sum(axis=1) / rows,
        "classwise_ece": of_cells.sum(axis=1) / rows / classes,
    }


def floor(signed, level):
    """The mean of the signed errors and the range that holds `level` of them."""
    return (signed.mean(), *percentiles(signed, level))


def percentiles(values, level):
    """The interval that leaves out as many resamples at either end."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return low, high


def widened(level, groups):
    """The level of an expanded percentile interval: of Student's t, for as many equal groups."""
    sizes = np.bincount(groups)
    n = sizes.sum() ** 2 / (sizes**2).sum()
    z = student.isf((1 - level) / 2, n - 1) * math.sqrt(n / (n - 1))
    return 1 - 2 * norm.sf(z)
