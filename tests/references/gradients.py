"""Gradients by central differences: what autograd is held against."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tests.references.arrays import Array


def central_differences(
    function: Callable[[NDArray[np.float64]], float], at: Array, step: float = 1e-5
) -> NDArray[np.float64]:
    """d function / d at, of at's shape; error of order step^2."""
    point = np.asarray(at, dtype=np.float64)
    gradient = np.empty_like(point)
    for index in np.ndindex(*point.shape):
        up, down = point.copy(), point.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


def richardson_differences(
    function: Callable[[NDArray[np.float64]], float], at: Array, step: float = 1e-3
) -> NDArray[np.float64]:
    """d function / d at from central differences at `step` and its half; error of order step^4."""
    coarse, fine = (
        central_differences(function, at, step),
        central_differences(function, at, step / 2),
    )
    return (4 * fine - coarse) / 3
