"""Focal loss's gamma: by progress, by the true class's probability in bands,
and by the Lambert-W rule.

Mukhoti et al. 2020. A gamma is a number the gradient does not pass through: differences of a loss
are taken with the gammas of the unmoved logits, `focal(logits, labels, gammas)`.
"""

import math
from fractions import Fraction
from typing import Literal

import mpmath

from tests.references.arrays import Array, Labels, classes, probabilities, rows

Schedule = Literal["531", "532"]
Bands = Literal["53", "532"]


def gamma_at(schedule: Schedule, progress: float | Fraction) -> float:
    """5 before epoch 100 of 350, 3 before epoch 250, then 1 ("531") or 2 ("532"), at
    progress = epoch / epochs."""
    early, late = Fraction(100, 350), Fraction(250, 350)
    # 100 / 350 in float is below 2 / 7, and means epoch 100 all the same.
    if isinstance(progress, float):
        early, late = float(early), float(late)
    if progress < early:
        return 5.0
    return 3.0 if progress < late else float(schedule[-1])


def true_probabilities(logits: Array, labels: Labels) -> list[float]:
    return [probabilities(row)[y] for row, y in zip(rows(logits), classes(labels), strict=True)]


def band_gammas(logits: Array, labels: Labels, schedule: Bands) -> list[float]:
    """FLSD-53: 5 below p_y = .2, else 3. FLSD-532: 5 below .2, 3 below .5, else 2. A bound
    is of the upper band."""
    gammas = []
    for p in true_probabilities(logits, labels):
        if p < 0.2:
            gammas.append(5.0)
        else:
            gammas.append(2.0 if schedule == "532" and p >= 0.5 else 3.0)
    return gammas


def gradient_ratio(p: float, gamma: float) -> float:
    """g(p, gamma): focal loss's gradient in the logits over cross-entropy's, for 0 < p < 1."""
    return (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * math.log(p)


def gamma_star(p0: float) -> float:
    """gamma > 0 with g(p0, gamma) = 1, for 0 < p0 < 1/2; from 1/2 on there is
    none, and 0 stands for it.

    gamma = s/b + W_-1(-s^(1 - s/b) / b * log s) / log s with s = 1 - p0, b = p0 log p0.
    """
    if p0 >= 0.5:
        return 0.0
    # Near 1/2 the argument nears W's branch point, where half the digits go.
    with mpmath.workdps(60):
        s = 1 - mpmath.mpf(p0)
        b = p0 * mpmath.log(p0)
        argument = -(s ** (1 - s / b)) / b * mpmath.log(s)
        return float(s / b + mpmath.lambertw(argument, k=-1).real / mpmath.log(s))


def lambert_gammas(logits: Array, labels: Labels, lowest: float) -> list[float]:
    """gamma_star(p_y); below `lowest` it stays at gamma_star(lowest), since it grows without
    bound."""
    return [gamma_star(max(p, lowest)) for p in true_probabilities(logits, labels)]
