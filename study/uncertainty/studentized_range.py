"""The studentized range: the largest difference of k normal means, in standard errors of one.

P(q; k, v) = E W(q s; k) over s, a root of chi-square by its v degrees of freedom; W(w; k) is the
distribution of the range of k normal values. Both integrands are smooth and fall to 0, so the
trapezoidal rule converges exponentially; SciPy's own nests two adaptive ones, and takes 70 ms.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

STEP = 0.15  # of a normal value
END = 8.5  # beyond it lies less than 1e-16
NATS = 38.0  # exp(-NATS) is nothing
_Z = np.arange(-END, END + STEP, STEP)
_BELOW = ndtr(_Z)
_DENSITY = np.exp(-(_Z**2) / 2) * (STEP / math.sqrt(2 * math.pi))


def share(q: float, methods: int, freedom: float) -> float:
    """The distribution function P(q; methods, freedom)."""
    if math.isinf(freedom):
        return float(_of_range(np.array([q]), methods)[0])
    roots, weights = _roots(freedom, methods)
    return float(weights @ _of_range(q * roots, methods))


@functools.cache
def quantile(methods: int, freedom: float, level: float) -> float:
    """The q of P(q; methods, freedom) = level, by the secant method inside a bracket."""
    low, high = 0.0, 8.0
    while share(high, methods, freedom) < level:
        low, high = high, 2 * high
    below, above = -level, share(high, methods, freedom) - level
    if low:
        below = share(low, methods, freedom) - level
    side = 0
    while high - low > 1e-13 * high:
        q = (low * above - high * below) / (above - below)
        if not low < q < high:
            break
        off = share(q, methods, freedom) - level
        if abs(off) < 1e-15:
            return q
        # An end that stays twice counts half (the Illinois method): else it would stay for long.
        if off < 0:
            low, below = q, off
            above = above / 2 if side < 0 else above
            side = -1
        else:
            high, above = q, off
            below = below / 2 if side > 0 else below
            side = 1
    return high


def _of_range(widths: Floats, methods: int) -> Floats:
    """W of each width, [n]: of the largest value z, the others lie less than a width below."""
    inside = _BELOW - ndtr(_Z - widths[:, None])
    found: Floats = methods * (inside ** (methods - 1) @ _DENSITY)
    return found


@functools.lru_cache(maxsize=64)
def _roots(freedom: float, methods: int) -> tuple[Floats, Floats]:
    """Values of s and their weights: even steps of log s, where its density falls fast enough."""
    step = min(0.1, 0.5 / math.sqrt(freedom))
    log_s = np.arange(-NATS / freedom**0.5 - NATS / freedom, 2.2, step)
    log_density = freedom * (log_s - np.exp(2 * log_s) / 2 + 0.5)
    kept = log_density > -NATS
    log_s = log_s[kept]
    # The factor is that of the density of s: as a sum over the steps, it needs no gamma function.
    weights = np.exp(log_density[kept])
    return np.exp(log_s), weights / weights.sum()
