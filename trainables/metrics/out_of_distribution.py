"""Uncertainty as a separator of out-of-distribution samples: AUROC, and FPR at 95% recall.

Out-of-distribution samples are the positives; they should have the larger scores.
"""

import torch
from torch import Tensor

from trainables.metrics import AFTER_TEMPERATURE


def entropy(logits: Tensor) -> Tensor:
    """-sum_k p_k log p_k of logits [N, K], [N], in nats; a probability of 0 adds nothing."""
    return torch.special.entr(logits.double().softmax(dim=-1)).sum(dim=-1)


def one_minus_confidence(logits: Tensor) -> Tensor:
    """1 - max_k p_k, [N], accurate far below float64's resolution at 1. Hendrycks & Gimpel 2017."""
    top = logits.argmax(dim=-1, keepdim=True)
    return logits.double().softmax(dim=-1).scatter(-1, top, 0.0).sum(dim=-1)


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


def separation(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """auroc and fpr95 of every score: {"auroc_entropy": ...}. inside, outside: logits [N, K]."""
    found: dict[str, float] = {}
    for name, score in SCORES.items():
        own = score(inside)
        others = score(outside)
        found[f"auroc_{name}"] = float(auroc(own, others))
        found[f"fpr95_{name}"] = float(fpr_at_95(own, others))
    return found


def separation_at(inside: Tensor, outside: Tensor, temperature: float) -> dict[str, float]:
    """`separation`, and with the prefix `ts_` the same with both sets at the temperature."""
    after = separation(inside.double() / temperature, outside.double() / temperature)
    return separation(inside, outside) | {
        AFTER_TEMPERATURE + name: value for name, value in after.items()
    }
