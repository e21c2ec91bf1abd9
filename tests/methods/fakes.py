"""A learner of given logits, or of a small network, with nothing else around a method's step."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trainables.method import Batch
from trainables.model import Network


class FakeLearner:
    """`network` gives the logits [N, K] whatever it is shown, or is the one given;
    `update` notes the gradients."""

    progress = 0.5
    epoch, epochs = 1, 2
    learning_rate = 0.5

    def __init__(
        self,
        logits: Tensor | None = None,
        network: Network | None = None,
        meta: Batch | None = None,
    ) -> None:
        if network is None:
            assert logits is not None
            network = Network(nn.Identity(), Given(logits))
        self.network, self.meta = network, meta
        self.num_samples = 0 if logits is None else len(logits)
        self.logits = logits
        self.gradients: list[dict[str, Tensor]] = []

    def apply(
        self, module: nn.Module, inputs: Tensor, weights: dict[str, Tensor] | None = None
    ) -> Tensor:
        output: Tensor = functional_call(module, weights or {}, (inputs,))
        return output

    def update(self, loss: Tensor) -> None:
        self.network.zero_grad()
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        found = self.network.named_parameters()
        self.gradients.append(
            {name: value.grad.clone() for name, value in found if value.grad is not None}
        )

    def meta_batch(self) -> Batch:
        assert self.meta is not None
        return self.meta

    def train_logits(self) -> Tensor:
        assert self.logits is not None
        return self.logits


class Given(nn.Module):
    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, features: Any) -> Tensor:
        return self.logits


def linear(weight: Tensor, features: nn.Module | None = None) -> Network:
    """float64: a head of weight [D, K] without bias, on `features` (the images themselves)."""
    head = nn.Linear(*weight.shape, bias=False).double()
    with torch.no_grad():
        head.weight.copy_(weight.T)
    return Network(features or nn.Identity(), head)
