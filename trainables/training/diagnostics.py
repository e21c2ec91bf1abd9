"""An epoch's diagnostics: where over-confidence comes from."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainables.methods.shared.entropy import entropy
from trainables.model import Network
from trainables.outputs.predictions import Predictions

GROUPED = ("nll_right", "nll_wrong", "entropy_right", "entropy_wrong")


@contextmanager
def feature_norms(network: Network, wanted: bool = True) -> Iterator[list[Tensor]]:
    """The L2 norms of the features of the samples predicted meanwhile: [N] float64, a batch each;
    of a network that gives every pixel a class, those of each place, [N, h, w].

    Features are what the head receives. wanted: whether any are collected.
    """
    norms: list[Tensor] = []

    def collect(head: nn.Module, inputs: tuple[Tensor]) -> None:
        norms.append(torch.linalg.vector_norm(inputs[0], dim=1, dtype=torch.float64))

    if not wanted:
        yield norms
        return
    handle = network.head.register_forward_pre_hook(collect)
    try:
        yield norms
    finally:
        handle.remove()


def diagnostics(
    predictions: Predictions, network: Network, norms: list[Tensor]
) -> dict[str, Tensor]:
    """Mean NLL and entropy, in nats, of right and wrong predictions; norms of head and features.

    0-dimensional, on the predictions' device, which is not waited for; those GROUPED are NaN for an
    empty group. head_norm: of the last layer's weights and biases together. feature_norm: the mean
    of `norms`, from `feature_norms`. Mukhoti et al. 2020, Figures 2 and I.1: the source of
    over-confidence.
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
    found["feature_norm"] = torch.cat(norms).mean()
    return found
