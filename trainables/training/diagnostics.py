"""An epoch's diagnostics: where over-confidence comes from."""

import torch

from trainables.methods.shared.entropy import entropy
from trainables.model import Network
from trainables.outputs.predictions import Predictions


def diagnostics(predictions: Predictions, network: Network) -> dict[str, float]:
    """Mean NLL and entropy, in nats, of right and wrong predictions, and the last layer's norm.

    Mukhoti et al. 2020, Figure 2: the source of over-confidence. Empty groups are left out.
    """
    logits = predictions.logits.double()
    labels = predictions.labels
    right = logits.argmax(dim=-1) == labels
    groups = {"right": right, "wrong": ~right}
    each = {
        "nll": torch.nn.functional.cross_entropy(logits, labels, reduction="none"),
        "entropy": entropy(logits),
    }
    found = {}
    for name, values in each.items():
        for word, chosen in groups.items():
            if chosen.any():
                found[f"{name}_{word}"] = float(values[chosen].mean())
    weights = [weight.detach().double().square().sum() for weight in network.head.parameters()]
    found["head_norm"] = float(torch.stack(weights).sum().sqrt())
    return found
