"""Scores of single predictions: accuracy, proper scores, confidence."""

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.at_once import cross_entropy
from trainables.metrics.shared.parts import in_parts, slices

METRICS = {
    "accuracy": {"place": 1, "stored": True, "kind": "fraction", "better": "higher",
        "matters": 0.01},
    "error": {"place": 2, "stored": True, "kind": "fraction", "heading": "Error", "matters": 0.01},
    "top5_accuracy": {"place": 3, "stored": True, "kind": "fraction", "better": "higher",
        "label": "top-5 accuracy", "fewest_classes": 6, "matters": 0.01},
    "nll": {"place": 4, "stored": True, "function": "negative_log_likelihood", "kind": "score",
        "label": "NLL",
        "unit": "nats", "largest": None, "reference": "log K", "heading": "NLL", "decimals": 3,
        "matters": 0.02},
    "brier": {"place": 5, "stored": True, "function": "brier_score", "kind": "score",
        "label": "Brier score", "largest": 2, "heading": "Brier", "matters": 0.005},
    "share_above_99": {"place": 13, "kind": "fraction", "better": None,
        "instead": "accuracy_above_99"},
    "accuracy_above_99": {"place": 14, "kind": "score", "better": "higher", "matters": 0.01},
}  # fmt: skip

SURE = 0.99


def top_label(
    logits: Tensor, labels: Tensor, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Confidence (the largest probability) and hit (1 if it is the label's), [N] float64.

    dtype: of the softmax. In float32 a confidence is exactly 1.0 from a lead of 17 nats on.
    """
    parts = in_parts(logits)
    confidence = torch.cat([part.to(dtype).softmax(dim=-1).amax(dim=-1) for part in parts])
    return confidence.double(), (logits.argmax(dim=-1) == labels).double()


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Fraction of samples whose largest logit is the label's (the first of ties)."""
    return (logits.argmax(dim=-1) == labels).double().mean()


def error(logits: Tensor, labels: Tensor) -> Tensor:
    """1 - accuracy."""
    return 1 - accuracy(logits, labels)


def top5_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Fraction of samples with the label among the five largest logits; ties: lower class first."""
    own = logits.gather(-1, labels[:, None])
    earlier = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    ahead = ((logits > own) | ((logits == own) & earlier)).sum(dim=-1)
    return (ahead < 5).double().mean()


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of -log p_y, in nats. A proper score: report it with any calibration error."""
    if len(parts := list(slices(*logits.shape))) == 1:
        return cross_entropy(logits.double(), labels)
    own = [
        logits[rows].double().log_softmax(dim=-1).gather(-1, labels[rows, None]) for rows in parts
    ]
    return F.nll_loss(torch.cat(own), torch.zeros_like(labels))  # the mean of the same, in order


def brier_score(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over samples of sum_k (p_k - [k = y])^2, in [0, 2]. Brier 1950."""
    found = []
    for rows in slices(*logits.shape):
        probs = logits[rows].double().softmax(dim=-1)
        truth = F.one_hot(labels[rows], logits.shape[1])
        found.append((probs - truth).square().sum(dim=-1))
    return torch.cat(found).mean()


def share_above_99(logits: Tensor, labels: Tensor) -> Tensor:
    """Fraction of samples with confidence above 99%; no better direction. Mukhoti et al. 2020."""
    confidence, _ = top_label(logits, labels)
    return (confidence > SURE).double().mean()


def accuracy_above_99(logits: Tensor, labels: Tensor) -> Tensor:
    """Accuracy of samples with confidence above 99%; NaN without any. Mukhoti et al. 2020."""
    confidence, hits = top_label(logits, labels)
    return hits[confidence > SURE].mean()
