"""An epoch's diagnostics: where over-confidence comes from."""

import torch
from torch import Tensor

from trainables.methods.shared.entropy import entropy
from trainables.model import Network
from trainables.outputs.predictions import Predictions

GROUPED = ("nll_right", "nll_wrong", "entropy_right", "entropy_wrong")


def diagnostics(predictions: Predictions, network: Network) -> dict[str, Tensor]:
    """Mean NLL and entropy, in nats, of right and wrong predictions, and the last layer's norm.

    0-dimensional, on the predictions' device, which is not waited for; those GROUPED are NaN for an
    empty group. Mukhoti et al. 2020, Figure 2: the source of over-confidence.
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
            found[f"{name}_{word}"] = values.where(chosen, 0.0).sum() / chosen.sum()
    weights = [weight.detach().double().square().sum() for weight in network.head.parameters()]
    found["head_norm"] = torch.stack(weights).sum().sqrt()
    return found
