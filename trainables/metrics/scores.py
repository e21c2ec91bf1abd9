"""Scores of single predictions: accuracy, proper scores, confidence."""

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.metrics.shared.parts import in_parts, slices
from trainables.vectorized import cross_entropy

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


def probabilities(logits: Tensor, probs: Tensor | None = None) -> Tensor:
    """The probabilities [N, K]: `probs` where they were given, as they are; else float64."""
    return logits.double().softmax(dim=-1) if probs is None else probs


def softmax_of_ties(logits: Tensor) -> Tensor:
    """The softmax [N, K] float64, summed in order of size: rows with the same logits in another
    order of classes have the same probabilities, to the bit, so that their ties are seen."""
    found = logits.to(torch.float64, copy=True)
    for part in in_parts(found):
        part.sub_(part.amax(dim=-1, keepdim=True)).exp_()
        part.div_(part.sort(dim=-1).values.sum(dim=-1, keepdim=True))
    return found


def top_label(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Confidence (the largest probability) and hit (1 if it is the label's), [N].

    The confidence has the dtype of `probabilities`; the hit is float64.
    """
    return _confidence(logits, probs), _hits(logits, labels, probs)


def _confidence(logits: Tensor, probs: Tensor | None) -> Tensor:
    if probs is not None:
        return probs.amax(dim=-1)
    return torch.cat([probabilities(part).amax(dim=-1) for part in in_parts(logits)])


def _hits(logits: Tensor, labels: Tensor, probs: Tensor | None) -> Tensor:
    scores = logits if probs is None else probs
    return (scores.argmax(dim=-1) == labels).double()


def accuracy(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """Fraction of samples whose largest score is the label's (the first of ties)."""
    return _hits(logits, labels, probs).mean()


def error(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """1 - accuracy."""
    return 1 - accuracy(logits, labels, probs)


def top5_accuracy(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """Fraction of samples with the label among the five largest scores; ties: lower class first."""
    scores = logits if probs is None else probs
    own = scores.gather(-1, labels[:, None])
    earlier = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
    ahead = ((scores > own) | ((scores == own) & earlier)).sum(dim=-1)
    return (ahead < 5).double().mean()


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of -log p_y, in nats. A proper score: report it with any calibration error."""
    if len(parts := list(slices(*logits.shape))) == 1:
        return cross_entropy(logits.double(), labels)
    own = [
        logits[rows].double().log_softmax(dim=-1).gather(-1, labels[rows, None]) for rows in parts
    ]
    return F.nll_loss(torch.cat(own), torch.zeros_like(labels))  # the mean of the same, in order


def brier_score(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """Mean over samples of sum_k (p_k - [k = y])^2, in [0, 2]. Brier 1950."""
    found = []
    for rows in slices(*logits.shape):
        part = probabilities(logits[rows], None if probs is None else probs[rows]).double()
        truth = F.one_hot(labels[rows], logits.shape[1])
        found.append((part - truth).square().sum(dim=-1))
    return torch.cat(found).mean()


def share_above_99(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """Fraction of samples with confidence above 99%; no better direction. Mukhoti et al. 2020."""
    confidence, _ = top_label(logits, labels, probs)
    return (confidence > rounded(SURE, confidence.dtype)).double().mean()


def accuracy_above_99(logits: Tensor, labels: Tensor, probs: Tensor | None = None) -> Tensor:
    """Accuracy of samples with confidence above 99%; NaN without any. Mukhoti et al. 2020."""
    confidence, hits = top_label(logits, labels, probs)
    return hits[confidence > rounded(SURE, confidence.dtype)].mean()


def rounded(threshold: float, dtype: torch.dtype) -> float:
    """The threshold as probabilities of this dtype have it: float32's 0.99 is not above 0.99."""
    return float(torch.tensor(threshold, dtype=dtype))
