"""The temperature that gives the lowest ECE on a grid, and confidences at a temperature."""

from __future__ import annotations

from torch import Tensor

from trainables.metrics.binned import ReliabilityBins

GRID = tuple(step / 10 for step in range(1, 101))


def fit_temperature_by_ece(logits: Tensor, labels: Tensor, bins: int = 15) -> float:
    """The T in .1, .2, ..., 10 of lowest ECE, the smallest of ties. Code of Mukhoti et al. 2020.

    Theirs accumulates .1 (its 2.1 is 2.1000000000000005) in float32; ours is k / 10 in float64. ECE
    is not a proper score: this T can be far from the truth, unlike that of NLL.
    """
    hits = (logits.argmax(dim=-1) == labels).double()
    behind = behind_top(logits)

    def error(temperature: float) -> float:
        found = ReliabilityBins.of(confidence_at(behind, temperature), hits, bins)
        return float(found.share.dot(found.gap))

    return min(GRID, key=error)


def behind_top(logits: Tensor) -> Tensor:
    """Each logit minus its sample's largest, [N, K] float64."""
    return logits.double() - logits.double().amax(dim=-1, keepdim=True)


def confidence_at(behind: Tensor, temperature: float) -> Tensor:
    """The confidence of each sample at a temperature, [N]. behind: as `behind_top`."""
    return (behind / temperature).exp().sum(dim=-1).reciprocal()
