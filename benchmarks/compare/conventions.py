"""ECE, AdaECE and classwise ECE as computed by public implementations that differ from ours.

For comparison with published numbers, not as objectives. Each is a rule that maps a confidence to a
bin index, or to none; or a mean over groups of samples.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.metrics.binned import equal_mass_index, equal_width_index
from trainables.metrics.scores import probabilities, top_label

# Bin index of a confidence in none of the bins.
DROPPED = -1


class Convention(NamedTuple):
    """A public rule. `used_by`: released codes; `loses`: what is in no bin, empty if nothing is.

    If bin weights are relative to the samples in a bin, the lost ones are missing from the total as
    well.
    """

    measures: str  # the corresponding metric of ours
    used_by: str
    rule: str
    loses: str
    value: Callable[..., Tensor]  # of logits, labels, bins, probs; in OF_GROUPS, and groups


# ---- equal-width bins ----------------------------------------------------------------------------


def _edges(bins: int, dtype: torch.dtype, like: Tensor) -> Tensor:
    """linspace; in float32, as in code that does not set a dtype, it is not k / bins."""
    return torch.linspace(0, 1, bins + 1, dtype=dtype, device=like.device).double()


def _left_closed(confidence: Tensor, bins: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """[lo, hi), and 1.0 in its own bin."""
    return torch.bucketize(confidence, _edges(bins, dtype, confidence), right=True) - 1


def _right_closed_float32(confidence: Tensor, bins: int) -> Tensor:
    return torch.bucketize(confidence, _edges(bins, torch.float32, confidence)) - 1


def _ceiling(confidence: Tensor, bins: int) -> Tensor:
    return (bins * confidence - 1).ceil().long()


def _left_closed_last_too(confidence: Tensor, bins: int) -> Tensor:
    return _left_closed(confidence, bins).clamp(max=bins - 1)


def _left_closed_float32(confidence: Tensor, bins: int) -> Tensor:
    return _left_closed(confidence, bins, torch.float32)


def _left_closed_without_one(confidence: Tensor, bins: int) -> Tensor:
    return torch.where(confidence < 1, _left_closed_float32(confidence, bins), DROPPED)


# ---- equal-mass bins -----------------------------------------------------------------------------


def _interpolated_edges(confidence: Tensor, bins: int) -> Tensor:
    """Edges at the ranks 0, N / bins, 2 N / bins, ..., interpolated between samples; (lo, hi]."""
    n = len(confidence)
    rank = torch.linspace(0, n, bins + 1, dtype=torch.float64, device=confidence.device)
    return torch.bucketize(confidence, _at_ranks(confidence, rank.clamp(max=n - 1))) - 1


def _at_ranks(confidence: Tensor, rank: Tensor) -> Tensor:
    """The sorted confidences at these ranks, interpolated."""
    ordered = confidence.sort().values
    last = len(confidence) - 1
    below = rank.long().clamp(max=last)
    above = (below + 1).clamp(max=last)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


def _split_by_position(confidence: Tensor, bins: int) -> Tensor:
    """array_split of the sorted confidences, ties as the sort leaves them."""
    return equal_mass_index(confidence.argsort().argsort(), bins)


def _edges_at_samples(confidence: Tensor, bins: int) -> Tensor:
    """A bin's lower edge is its first sample; [lo, hi), the first and the last bin unbounded."""
    n = len(confidence)
    place = torch.arange(1, bins, dtype=torch.float64, device=confidence.device) * (n / bins)
    start = place.round().long()
    edges = confidence.sort().values[start.clamp(max=n - 1)]
    return torch.bucketize(confidence, edges, right=True)


def _edges_at_samples_and_one(confidence: Tensor, bins: int) -> Tensor:
    return _edges_at_samples(confidence, bins) + (confidence == 1)


def _quantile_edges(confidence: Tensor, bins: int) -> Tensor:
    """Quantiles of the confidences, 0 to 1; [lo, hi), the last closed. None if two edges tie."""
    last = len(confidence) - 1
    rank = torch.linspace(0, last, bins + 1, dtype=torch.float64, device=confidence.device)
    edges = _at_ranks(confidence, rank)
    edges[0] = 0.0
    edges[-1] = 1.0
    index = (torch.bucketize(confidence, edges, right=True) - 1).clamp(max=bins - 1)
    return torch.where((edges.diff() > 0).all(), index, DROPPED)


# ---- from a rule to a number ---------------------------------------------------------------------


def _error(values: Tensor, hits: Tensor, index: Tensor) -> Tensor:
    """Sum over the bins of |sum of hit - value|, without samples that have no bin."""
    kept = index > DROPPED
    bins = int(index.max()) + 1 if len(index) else 0
    gap = torch.zeros(bins, dtype=torch.float64, device=values.device)
    return gap.index_add_(0, index[kept], (hits - values)[kept]).abs().sum()


def _top_label(
    rule: Callable[[Tensor, int], Tensor], dtype: torch.dtype = torch.float64, of_kept: bool = False
) -> Callable[..., Tensor]:
    """The top-label error, over all samples or, with of_kept, over those that have a bin.

    dtype: of the softmax. In float32 a confidence is exactly 1.0 from a lead of 17 nats on.
    """

    def value(logits: Tensor, labels: Tensor, bins: int, probs: Tensor | None = None) -> Tensor:
        _, hits = top_label(logits, labels, probs)
        found = logits.to(dtype).softmax(dim=-1) if probs is None else probs.to(dtype)
        confidence = found.amax(dim=-1).double()
        index = rule(confidence, bins)
        kept = (index > DROPPED).sum() if of_kept else len(labels)
        return _error(confidence, hits, index) / kept

    return value


def _mean_of_groups(
    logits: Tensor, labels: Tensor, bins: int, probs: Tensor | None, groups: Tensor
) -> Tensor:
    """The mean over groups of each one's ECE, over equal-width bins."""
    confidence, hits = top_label(logits, labels, probs)
    total = int(groups.max()) + 1
    gaps = torch.zeros(total * bins, dtype=torch.float64, device=logits.device)
    gaps.index_add_(
        0, groups * bins + equal_width_index(confidence, bins), hits - confidence.double()
    )
    errors = gaps.view(total, bins).abs().sum(dim=1) / groups.bincount()
    return errors.mean()


def _seen_classes(logits: Tensor, labels: Tensor, bins: int, probs: Tensor | None = None) -> Tensor:
    """Classwise ECE over the classes up to the largest label."""
    found = probabilities(logits, probs).double()
    columns = found.T.contiguous()[: int(labels.max()) + 1]
    errors = [
        _error(column, (labels == k).double(), _right_closed_float32(column, bins))
        for k, column in enumerate(columns)
    ]
    return torch.stack(errors).mean() / len(labels)


def _thresholded_adaptive(
    rule: Callable[[Tensor, int], Tensor],
    logits: Tensor,
    labels: Tensor,
    bins: int,
    probs: Tensor | None = None,
) -> Tensor:
    """TACE: per class, probabilities above 1% in equal-mass bins; 0 for a class without any."""
    errors = []
    for k, column in enumerate(probabilities(logits, probs).double().T):
        kept = column[column > 0.01]
        hits = (labels == k).double()[column > 0.01]
        index = rule(kept, bins) if len(kept) else kept.long()
        errors.append(_error(kept, hits, index) / max(1, len(kept)))
    return torch.stack(errors).mean()


CONVENTIONS = {
    "torrvision": Convention(
        "ece", "torrvision, gpleiss, MbLS, meta-calibration", "(lo, hi], edges in float32", "",
        _top_label(_right_closed_float32, torch.float32)),
    "torrvision_numpy": Convention(
        "ece", "torrvision's NumPy functions", "ceil(bins c) - 1 of float32 c", "",
        _top_label(_ceiling, torch.float32)),
    "netcal": Convention(
        "ece", "netcal", "[lo, hi), the last closed", "",
        _top_label(_left_closed_last_too)),
    "torchmetrics": Convention(
        "ece", "torchmetrics, torch-uncertainty, probmetrics", "[lo, hi) in float32, 1.0 separate",
        "", _top_label(_left_closed_float32, torch.float32)),
    "google": Convention(
        "ece", "uncertainty-metrics, robustness_metrics, relplot", "[lo, hi), 1.0 separate", "",
        _top_label(_left_closed)),
    "sample_prioritization": Convention(
        "ece", "Calib-Sample-Prioritization", "[lo, hi) in float32", "confidences of 1.0",
        _top_label(_left_closed_without_one, torch.float32, of_kept=True)),
    "torrvision_adaptive": Convention(
        "adaptive_ece", "torrvision, MbLS", "(lo, hi], edges between samples",
        "the least confident sample", _top_label(_interpolated_edges)),
    "torch_uncertainty_adaptive": Convention(
        "adaptive_ece", "torch-uncertainty", "array_split, ties in row order", "",
        _top_label(_split_by_position)),
    "google_adaptive": Convention(
        "adaptive_ece", "uncertainty-metrics", "[lo, hi), edges at samples", "",
        _top_label(_edges_at_samples)),
    "robustness_metrics_adaptive": Convention(
        "adaptive_ece", "robustness_metrics", "[lo, hi), edges at samples, 1.0 separate", "",
        _top_label(_edges_at_samples_and_one)),
    "netcal_adaptive": Convention(
        "adaptive_ece", "netcal (undefined if edges tie)", "[lo, hi) between quantiles", "",
        _top_label(_quantile_edges, of_kept=True)),
    "torrvision_classwise": Convention(
        "classwise_ece", "torrvision, MbLS", "classes up to the largest label",
        "later classes, p = 0", _seen_classes),
    "google_tace": Convention(
        "thresholded_classwise_ece", "uncertainty-metrics", "p > 1%, edges at samples", "",
        partial(_thresholded_adaptive, _edges_at_samples)),
    "robustness_metrics_tace": Convention(
        "thresholded_classwise_ece", "robustness_metrics", "p > 1%, edges at samples, 1.0 separate",
        "", partial(_thresholded_adaptive, _edges_at_samples_and_one)),
}  # fmt: skip


# Of samples that belong together, such as the pixels of an image.
OF_GROUPS = {
    "mean_of_groups": Convention(
        "ece", "averages over images",
        "each group's own ECE, averaged; biased upward: few rows a bin", "", _mean_of_groups),
}  # fmt: skip


def by_convention(
    logits: Tensor,
    labels: Tensor,
    bins: int = 15,
    groups: Tensor | None = None,
    probs: Tensor | None = None,
) -> dict[str, float]:
    """The value under every convention. logits: [N, K]; labels: [N] int64; groups: [N] int64, from
    0 on, if samples belong together; probs: [N, K] where these were given."""
    found = {
        name: float(one.value(logits, labels, bins, probs)) for name, one in CONVENTIONS.items()
    }
    if groups is not None:
        for name, one in OF_GROUPS.items():
            found[name] = float(one.value(logits, labels, bins, probs, groups))
    return found
