"""Metrics of a classifier and of its confidence. Pure functions of logits [N, K] and labels [N]; float64 inside.

Conventions (recorded with every tracked number as `CONVENTION`): fractions in [0, 1], NLL in nats. Bins of equal
width are right-closed (lo, hi] with the float64 edges k / bins, as in Guo et al. 2017; the first also holds 0, so a
confidence of exactly 1.0 belongs to the last bin and nothing is dropped.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.fields import FieldError, nearest

CONVENTION = "equal-width bins (lo, hi], first holds 0, float64 edges; adaptive: array_split, ties follow their first"


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of samples whose largest logit is the label's (the first of equals)."""
    return _hits(logits, labels).mean()


def error(logits: Tensor, labels: Tensor) -> Tensor:
    """1 - accuracy."""
    return 1 - accuracy(logits, labels)


def top5_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Share of samples whose label is among the five largest logits; among equals the lower class comes first."""
    own = logits.gather(-1, labels[:, None])
    earlier = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    ahead = ((logits > own) | ((logits == own) & earlier)).sum(dim=-1)
    return (ahead < 5).double().mean()


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of -log p_y, in nats. A proper score: read it next to any calibration error."""
    return F.cross_entropy(logits.double(), labels)


def brier_score(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over samples of sum_k (p_k - [k = y])^2, in [0, 2]. Brier 1950."""
    probs = logits.double().softmax(dim=-1)
    return (probs - F.one_hot(labels, logits.shape[1])).square().sum(dim=-1).mean()


def expected_calibration_error(logits: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Sum over equal-width bins of share * |accuracy - confidence|. Guo et al. 2017, Eq. 3."""
    return _weighted_gap(ReliabilityBins.of(*_confidence_and_hits(logits, labels), bins))


def maximum_calibration_error(logits: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Largest |accuracy - confidence| over the bins that hold a sample. Guo et al. 2017, Eq. 5; noisy by nature."""
    return ReliabilityBins.of(*_confidence_and_hits(logits, labels), bins).gap.max()


def adaptive_calibration_error(logits: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """ECE over bins of equal mass (AdaECE). Mukhoti et al. 2020, Section 3.

    Sizes as `numpy.array_split` of the sorted confidences; equal confidences follow the first of them into its bin,
    so that the order of the rows does not matter; a bin left empty is dropped. (Mukhoti's code interpolates edges
    and loses the smallest sample.)
    """
    confidence, hits = _confidence_and_hits(logits, labels)
    return _weighted_gap(ReliabilityBins.of_equal_mass(confidence, hits, bins))


def classwise_calibration_error(logits: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Mean over classes k of the ECE of p_k against [y = k]. Kull et al. 2019; shrinks with K by construction."""
    probs = logits.double().softmax(dim=-1)
    num_classes = probs.shape[1]
    # One row of bins per class: bin b of class k is cell k * bins + b.
    cells = _bin_index(probs, bins) + bins * torch.arange(num_classes, device=probs.device)
    hits = F.one_hot(labels, num_classes).double()
    gap = torch.zeros(num_classes * bins, dtype=torch.float64, device=probs.device)
    gap.index_add_(0, cells.flatten(), (hits - probs).flatten())
    return gap.abs().sum() / (len(labels) * num_classes)


class ReliabilityBins(NamedTuple):
    """What a reliability diagram draws: per bin that holds a sample, how many, mean confidence and accuracy."""

    counts: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def gap(self) -> Tensor:
        """|accuracy - confidence| of each bin."""
        return (self.accuracy - self.confidence).abs()

    @classmethod
    def of(cls, confidence: Tensor, hits: Tensor, bins: int) -> "ReliabilityBins":
        """Bins of equal width."""
        return cls._collect(confidence, hits, _bin_index(confidence, bins), bins)

    @classmethod
    def of_equal_mass(cls, confidence: Tensor, hits: Tensor, bins: int) -> "ReliabilityBins":
        """Bins of (nearly) equal count, ties kept together."""
        order = confidence.argsort(stable=True)
        n = len(confidence)
        sizes = torch.full((bins,), n // bins, device=confidence.device)
        sizes[: n % bins] += 1
        bin_of_rank = torch.repeat_interleave(torch.arange(bins, device=confidence.device), sizes)
        _, first_rank = _runs(confidence[order])
        return cls._collect(confidence[order], hits[order], bin_of_rank[first_rank], bins)

    @classmethod
    def _collect(cls, confidence: Tensor, hits: Tensor, index: Tensor, bins: int) -> "ReliabilityBins":
        sums = torch.zeros(3, bins, dtype=torch.float64, device=confidence.device)
        sums.index_add_(1, index, torch.stack([torch.ones_like(confidence), confidence, hits]))
        count, confidence_sum, hit_sum = sums[:, sums[0] > 0]
        return cls(count, confidence_sum / count, hit_sum / count)


def _runs(ordered: Tensor) -> tuple[Tensor, Tensor]:
    """For each element of a sorted tensor: the number of its run of equals, and that run's first position."""
    starts = torch.ones(len(ordered), dtype=torch.bool, device=ordered.device)
    starts[1:] = ordered[1:] != ordered[:-1]
    run = starts.long().cumsum(0) - 1
    return run, starts.nonzero().squeeze(-1)[run]


def _bin_index(values: Tensor, bins: int) -> Tensor:
    edges = torch.arange(1, bins, dtype=torch.float64, device=values.device) / bins
    return torch.bucketize(values, edges)


def _weighted_gap(found: ReliabilityBins) -> Tensor:
    return (found.counts * found.gap).sum() / found.counts.sum()


def _hits(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(dim=-1) == labels).double()


def _confidence_and_hits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return logits.double().softmax(dim=-1).amax(dim=-1), _hits(logits, labels)


Metric = Callable[..., Tensor]
_BINNED: dict[str, Metric] = {
    "ece": expected_calibration_error,
    "mce": maximum_calibration_error,
    "adaptive_ece": adaptive_calibration_error,
    "classwise_ece": classwise_calibration_error,
}
_METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "error": error,
    "top5_accuracy": top5_accuracy,
    "nll": negative_log_likelihood,
    "brier": brier_score,
    **_BINNED,
}
AFTER_TEMPERATURE = "ts_"


def names() -> list[str]:
    """All metrics; with `ts_` in front the same after temperature scaling."""
    return [*_METRICS, *(AFTER_TEMPERATURE + name for name in _METRICS)]


def find(name: str) -> Metric:
    """The function of that name (a `ts_` metric is the same function, of calibrated logits)."""
    if name not in names():
        raise FieldError("", f"there is no metric '{name}'.{nearest(name, names())}")
    return _METRICS[name.removeprefix(AFTER_TEMPERATURE)]


def available(num_classes: int) -> Iterator[str]:
    """The metrics that say something for that many classes: no top-5 for five or fewer."""
    return (name for name in _METRICS if num_classes > 5 or name != "top5_accuracy")


def evaluate(logits: Tensor, labels: Tensor, bins: int = 15) -> dict[str, float]:
    """Every metric that the number of classes allows. logits: [N, K]; labels: [N] int64."""
    logits = logits.double()
    return {
        name: float(_METRICS[name](logits, labels, bins) if name in _BINNED else _METRICS[name](logits, labels))
        for name in available(logits.shape[1])
    }
