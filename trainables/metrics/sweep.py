"""ECE with as many bins as the data support. Roelofs et al. 2022."""

from collections.abc import Callable

import torch
from torch import Tensor

from trainables.metrics.binned import first_of_equals
from trainables.metrics.scores import top_label

METRICS = {
    "ece_sweep": {"place": 22, "function": "sweep_calibration_error", "matters": 0.01},
    "ece_sweep_equal_width": {
        "place": 23,
        "function": "sweep_calibration_error_equal_width",
        "matters": 0.01,
    },
}


def sweep_calibration_error(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """ECE over the most equal-mass bins with rising accuracy. Roelofs et al. 2022."""
    return equal_mass_sweep(logits, labels, probs)[0]


def sweep_calibration_error_equal_width(
    logits: Tensor, labels: Tensor, probs: Tensor | None = None
) -> Tensor:
    """ECE over the most equal-width bins with rising accuracy. Roelofs et al. 2022."""
    return equal_width_sweep(logits, labels, probs)[0]


def equal_mass_sweep(
    logits: Tensor, labels: Tensor, probs: Tensor | None = None
) -> tuple[Tensor, int]:
    """The error and its number of bins; ties stay together (the released code splits them)."""
    confidence, hits = _ordered(logits, labels, probs)
    n = len(confidence)
    # A bin that would start within ties starts after them: ties share the bin of the first.
    positions = torch.arange(n + 1, device=confidence.device)
    first = first_of_equals(confidence)
    start_of = torch.full((n + 1,), n, device=confidence.device)
    start_of[:-1] = torch.where(first == positions[:-1], positions[:-1], n)
    start_of = start_of.flip(0).cummin(0).values.flip(0)

    def bounds(bins: int) -> Tensor:
        k = torch.arange(bins + 1, device=confidence.device)
        return start_of[k * (n // bins) + k.clamp(max=n % bins)]

    return _sweep(confidence, hits, bounds)


def equal_width_sweep(
    logits: Tensor, labels: Tensor, probs: Tensor | None = None
) -> tuple[Tensor, int]:
    """The error and its number of bins."""
    confidence, hits = _ordered(logits, labels, probs)

    def bounds(bins: int) -> Tensor:
        edges = torch.arange(bins + 1, dtype=torch.float64, device=confidence.device) / bins
        # (lo, hi]; the edges are rounded as the confidences are.
        found = torch.searchsorted(confidence, edges.to(confidence.dtype), right=True)
        found[0] = 0
        found[-1] = len(confidence)
        return found

    return _sweep(confidence, hits, bounds)


def _ordered(logits: Tensor, labels: Tensor, probs: Tensor | None) -> tuple[Tensor, Tensor]:
    confidence, hits = top_label(logits, labels, probs)
    order = confidence.argsort()
    return confidence[order], hits[order]


def _sweep(confidence: Tensor, hits: Tensor, bounds: Callable[[int], Tensor]) -> tuple[Tensor, int]:
    """Increase the number of bins until accuracy falls between two; use the number before."""
    n = len(confidence)
    zero = hits.new_zeros(1)
    hit_sums, gap_sums = (
        torch.cat([zero, each.cumsum(0)]) for each in (hits, hits - confidence.double())
    )

    def error(bins: int) -> Tensor:
        return gap_sums[bounds(bins)].diff().abs().sum() / n

    def rises(cuts: Tensor) -> bool:
        counts = cuts.diff()
        accuracy = hit_sums[cuts].diff()[counts > 0] / counts[counts > 0]
        return bool((accuracy.diff() >= 0).all())

    # One bin per distinct confidence: if accuracy rises over those, it rises over any bins.
    position = torch.arange(n + 1, device=confidence.device)
    starts = position[:-1][first_of_equals(confidence) == position[:-1]]
    if rises(torch.cat([starts, position[-1:]])):
        return error(n), n
    for bins in range(2, n + 1):
        if not rises(bounds(bins)):
            return error(bins - 1), bins - 1
    return error(n), n
