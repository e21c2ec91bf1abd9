"""Binned metrics of probabilities that are fractions, in exact arithmetic, one sample at a time.

Nothing is rounded before the last step: a root, or the division that makes a float. An edge is the
fraction k / bins, and a bin is (lo, hi], the first with 0.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from fractions import Fraction

Row = Sequence[Fraction]


def top(row: Row) -> tuple[Fraction, int]:
    """The confidence and the predicted class, the first of ties."""
    confidence = max(row)
    return confidence, list(row).index(confidence)


def width_bin(p: Fraction, bins: int) -> int:
    return max(math.ceil(p * bins) - 1, 0)


def mass_bins(values: Sequence[Fraction], bins: int) -> list[int]:
    """The bins of `numpy.array_split` of the sorted values; equal ones share the first's."""
    n = len(values)
    of_rank = [b for b in range(bins) for _ in range(n // bins + (b < n % bins))]
    ordered = sorted(values)
    return [of_rank[ordered.index(value)] for value in values]


class Bins:
    """Samples (confidence, hit) in bins: sums of each that is not empty."""

    def __init__(self, pairs: Sequence[tuple[Fraction, int]], index: Sequence[Hashable]) -> None:
        groups = defaultdict(list)
        for pair, place in zip(pairs, index, strict=True):
            groups[place].append(pair)
        self.samples = len(pairs)
        self.counts = [len(group) for group in groups.values()]
        self.accuracies = [
            Fraction(sum(hit for _, hit in group), len(group)) for group in groups.values()
        ]
        self.gaps = [
            sum(p for p, _ in group) / len(group) - accuracy
            for group, accuracy in zip(groups.values(), self.accuracies, strict=True)
        ]

    def mean(self, power: int) -> Fraction:
        terms = (n * abs(gap) ** power for n, gap in zip(self.counts, self.gaps, strict=True))
        return sum(terms, Fraction(0)) / self.samples

    def debiased(self) -> Fraction | None:
        """The squared L2 error less its bias, over bins of two samples or more."""
        some = [
            (n, gap, a)
            for n, gap, a in zip(self.counts, self.gaps, self.accuracies, strict=True)
            if n > 1
        ]
        total = sum(n for n, _, _ in some)
        if not total:
            return None
        return sum(n * (gap**2 - a * (1 - a) / (n - 1)) for n, gap, a in some) / Fraction(total)


def metrics(rows: Sequence[Row], labels: Sequence[int], bins: int = 15) -> dict[str, float]:
    """The binned metrics, those with a threshold, and the Brier score, by name."""
    found = [
        (confidence, int(k == y)) for (confidence, k), y in zip(map(top, rows), labels, strict=True)
    ]
    width = Bins(found, [width_bin(c, bins) for c, _ in found])
    mass = Bins(found, mass_bins([c for c, _ in found], bins))
    of_ten = [abs(g) for g, n in zip(width.gaps, width.counts, strict=True) if n >= 10]
    sure = [hit for c, hit in found if c > Fraction(99, 100)]
    classes = [
        [(row[k], int(k == y)) for row, y in zip(rows, labels, strict=True)]
        for k in range(len(rows[0]))
    ]
    by_class = [Bins(one, [width_bin(p, bins) for p, _ in one]) for one in classes]
    by_mass = [Bins(one, mass_bins([p for p, _ in one], bins)) for one in classes]
    above = [[(p, hit) for p, hit in one if p > Fraction(1, 100)] for one in classes]
    thresholded = [Bins(one, [width_bin(p, bins) for p, _ in one]).mean(1) for one in above if one]
    brier = sum((p - hit) ** 2 for one in classes for p, hit in one) / Fraction(len(rows))
    calibration = sum(one.mean(2) for one in by_class)
    exact: dict[str, Fraction | float | None] = {
        "ece": width.mean(1),
        "mce": max(map(abs, width.gaps)),
        "mce_of_ten": max(of_ten, default=None),
        "ace_unweighted": sum(map(abs, width.gaps)) / Fraction(len(width.gaps)),
        "rmsce": math.sqrt(width.mean(2)),
        "adaptive_ece": mass.mean(1),
        "l2": math.sqrt(mass.mean(2)),
        "debiased_l2": _root(mass.debiased()),
        "classwise_ece": sum(one.mean(1) for one in by_class) / Fraction(len(classes)),
        "thresholded_classwise_ece": (
            sum(thresholded) / Fraction(len(thresholded)) if thresholded else None
        ),
        "debiased_l2_marginal": _root_of_mean([one.debiased() for one in by_mass]),
        "brier": brier,
        "brier_calibration": calibration,
        "brier_refinement": brier - calibration,
        "share_above_99": Fraction(len(sure), len(rows)),
        "accuracy_above_99": Fraction(sum(sure), len(sure)) if sure else None,
        "ece_sweep": sweep(found, mass_bins),
        "ece_sweep_equal_width": sweep(
            found, lambda values, b: [width_bin(value, b) for value in values]
        ),
    }
    return {name: float(value) for name, value in exact.items() if value is not None}


def sweep(found: Sequence[tuple[Fraction, int]], index) -> Fraction:  # type: ignore[no-untyped-def]
    """ECE over the most bins with accuracies that do not fall from bin to bin."""
    values = [c for c, _ in found]
    best = Fraction(0)
    for bins in range(1, len(found) + 1):
        places = index(values, bins)
        order = sorted(range(len(found)), key=lambda i: places[i])
        made = Bins([found[i] for i in order], [places[i] for i in order])
        if made.accuracies != sorted(made.accuracies):
            break
        best = made.mean(1)
    return best


def _root(square: Fraction | None) -> float | None:
    return None if square is None else math.sqrt(max(square, 0))


def _root_of_mean(squares: Sequence[Fraction | None]) -> float | None:
    if any(square is None for square in squares):
        return None
    return math.sqrt(sum(max(square, 0) for square in squares) / Fraction(len(squares)))
