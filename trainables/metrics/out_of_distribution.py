"""Uncertainty as a separator of out-of-distribution samples: AUROC, and FPR at 95% recall.

Out-of-distribution samples are the positives; they should have the larger scores.
"""

import torch
from torch import Tensor

from trainables.metrics import AFTER_TEMPERATURE
from trainables.metrics.scores import probabilities


def entropy(logits: Tensor, probs: Tensor | None = None) -> Tensor:
    """-sum_k p_k log p_k of logits [N, K], [N], in nats; a probability of 0 adds nothing."""
    return torch.special.entr(_in_order(logits, probs)).sum(dim=-1)


def one_minus_confidence(logits: Tensor, probs: Tensor | None = None) -> Tensor:
    """1 - max_k p_k, [N], accurate far below float64's resolution at 1. Hendrycks & Gimpel 2017."""
    found = _in_order(logits, probs)
    top = found.argmax(dim=-1, keepdim=True)
    return found.scatter(-1, top, 0.0).sum(dim=-1)


def _in_order(logits: Tensor, probs: Tensor | None) -> Tensor:
    """The probabilities [N, K] float64. Given ones are sorted: the same votes for other classes
    must give equal scores, to the bit, for ties to be seen."""
    found = probabilities(logits, probs).double()
    return found if probs is None else found.sort(dim=-1).values


SCORES = {"entropy": entropy, "confidence": one_minus_confidence}


def auroc(inside: Tensor, outside: Tensor) -> Tensor:
    """The probability that an outside sample scores above an inside one, ties counting half.

    inside: [N] in-distribution scores; outside: [M].
    """
    ordered = inside.double().sort().values
    outside = outside.double()
    below = torch.searchsorted(ordered, outside).double()
    up_to = torch.searchsorted(ordered, outside, right=True).double()
    return (below + up_to).mean() / (2 * len(inside))


def fpr_at_95(inside: Tensor, outside: Tensor) -> Tensor:
    """False positive rate: inside samples above the highest threshold that finds 95% of the others.

    inside: [N], outside: [M] scores; a score at the threshold is flagged. (Papers with
    in-distribution samples as the positives report another number: swap the sets and the sign of
    the scores.)
    """
    outside = outside.double()
    needed = -(-95 * len(outside) // 100)  # rounded up, in whole numbers
    threshold = outside.sort(descending=True).values[needed - 1]
    return (inside.double() >= threshold).double().mean()


def separation(
    inside: Tensor,
    outside: Tensor,
    probs_inside: Tensor | None = None,
    probs_outside: Tensor | None = None,
) -> dict[str, float]:
    """auroc and fpr95 of every score: {"auroc_entropy": ...}. inside, outside: logits [N, K];
    probs_inside, probs_outside: where these were given."""
    found: dict[str, float] = {}
    for name, score in SCORES.items():
        own = score(inside, probs_inside)
        others = score(outside, probs_outside)
        found[f"auroc_{name}"] = float(auroc(own, others))
        found[f"fpr95_{name}"] = float(fpr_at_95(own, others))
    return found


def separation_at(
    inside: Tensor,
    outside: Tensor,
    temperature: float,
    probs_inside: Tensor | None = None,
    probs_outside: Tensor | None = None,
) -> dict[str, float]:
    """`separation`, and with the prefix `ts_` the same with both sets at the temperature."""
    after = separation(inside.double() / temperature, outside.double() / temperature)
    return separation(inside, outside, probs_inside, probs_outside) | {
        AFTER_TEMPERATURE + name: value for name, value in after.items()
    }
