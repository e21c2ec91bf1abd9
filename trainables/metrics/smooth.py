"""Smooth ECE: no bins, a Gaussian reflected at 0 and 1. Blasiok & Nakkiran 2024.

The residuals hit - confidence, smoothed by the reflected Gaussian of width sigma, are a cosine
series: mode k is damped by exp(-(pi k sigma)^2 / 2). So the smoothed residual and its integral are
exact at each point of a grid, confidences are not discretised, and mass at exactly 0 or 1 is
handled correctly. Only where the residual changes sign within a cell is the integral of its
absolute value approximate.
"""

import math

import torch
from torch import Tensor

from trainables.metrics.scores import top_label

METRICS = {
    "smooth_ece": {
        "place": 19,
        "function": "smooth_calibration_error",
        "label": "smooth ECE",
        "matters": 0.01,
    }
}

# Square roots of the numbers of modes, tried until the bandwidth is resolved: sigma >= 0.01,
# 0.0007, 0.00004.
ROOTS = (16, 64, 256)
# A mode k with pi k sigma above this vanishes in float64.
CUTOFF = 8.4
# Samples transformed at once: bounds the memory to CHUNK * 2 * root complex numbers.
CHUNK = 8192


def smooth_calibration_error(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """Smooth ECE at the bandwidth equal to its value, also with mass at 1. Blasiok & Nakkiran 2024.

    A fixed point below 0.00004 is not resolved: the result is then the value at that bandwidth,
    which is even smaller.
    """
    confidence, hits = top_label(logits, labels, probs)
    return fixed_point(confidence.double(), hits - confidence.double())


def fixed_point(confidence: Tensor, residual: Tensor) -> Tensor:
    """The error that is its own bandwidth, of residuals hit - confidence; both [N] float64."""
    # Takes half a second to import; readers of a study do not need it.
    from scipy.optimize import brentq

    least = residual.mean().abs()
    if bool((residual >= 0).all() | (residual <= 0).all()):  # no cancellation at any bandwidth
        return least
    for root in ROOTS:
        modes = _modes(confidence, residual, root)
        finest = CUTOFF / (math.pi * len(modes))
        if float(_error_at(modes, finest)) > finest:
            break
    else:
        return _error_at(modes, finest)

    def above(sigma: float) -> float:
        return float(_error_at(modes, sigma)) - sigma

    return _error_at(modes, brentq(above, finest, 1.0, xtol=1e-12))


def smooth_calibration_error_at(logits: Tensor, labels: Tensor, sigma: float) -> Tensor:
    """Smooth ECE at sigma >= 0.00005: the integral over [0, 1] of |smoothed hit - confidence|."""
    confidence, hits = top_label(logits, labels)
    return error_at(confidence, hits - confidence, sigma)


def error_at(confidence: Tensor, residual: Tensor, sigma: float) -> Tensor:
    """Smooth ECE at bandwidth sigma of residuals hit - confidence; both [N] float64."""
    root = next(root for root in ROOTS if CUTOFF / (math.pi * root**2) <= sigma)
    return _error_at(_modes(confidence, residual, root), sigma)


def _modes(confidence: Tensor, residual: Tensor, root: int) -> Tensor:
    """The cosine series of the residuals' mean, [root^2]: mean r, then 2 mean(r cos(pi k c)).

    cos(pi (a root + b) c) for all a and b from 2 root exponentials per sample and one matrix
    product.
    """
    step = torch.arange(root, dtype=torch.float64, device=confidence.device)[:, None] * math.pi
    total = torch.zeros(root, root, dtype=torch.complex128, device=confidence.device)
    for start in range(0, len(confidence), CHUNK):
        c = confidence[start : start + CHUNK]
        one = torch.ones_like(c)
        coarse = torch.polar(one, root * step * c)
        fine = torch.polar(one, step * c)
        total += (coarse * residual[start : start + CHUNK]) @ fine.T
    modes = total.real.flatten() * (2 / len(confidence))
    modes[0] /= 2
    return modes


def _error_at(modes: Tensor, sigma: float) -> Tensor:
    """The integral over [0, 1] of |sum_k modes_k exp(-(pi k sigma)^2 / 2) cos(pi k t)|."""
    k = torch.arange(len(modes), dtype=torch.float64, device=modes.device) * math.pi
    damped = modes * torch.exp(-(k * sigma).square() / 2)
    cells = 8 * len(modes)  # at least 21 for each sigma
    smoothed = torch.fft.rfft(damped, n=2 * cells).real
    # Its integral from 0: the mean is linear, the others are sines.
    rest = torch.cat([damped.new_zeros(1), damped[1:] / k[1:]])
    even = torch.linspace(0, 1, cells + 1, dtype=torch.float64, device=modes.device) * damped[0]
    integral = even - torch.fft.rfft(rest, n=2 * cells).imag
    left, right = smoothed[:-1], smoothed[1:]
    # A sign change within a cell gives two triangles.
    steps = 2 * cells * (left.abs() + right.abs()).clamp(min=1e-300)
    turned = (left.square() + right.square()) / steps
    return torch.where(left * right < 0, turned, integral.diff().abs()).sum()
