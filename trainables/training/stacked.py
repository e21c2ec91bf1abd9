"""Several trials of one method as one training step: their networks as one, and their losses at
once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.at_once import for_each
from trainables.config import TrialConfig
from trainables.loading.batches import DeviceSplit
from trainables.method import Batch, Method, Mixed, numbers, with_numbers
from trainables.model import Network
from trainables.training.choices import Choices
from trainables.training.weights import Weights

LAYERS = (nn.Flatten, nn.Linear, nn.ReLU, nn.Identity)


class StackedNetwork:
    """R networks of equal layers: a linear layer is one product of R matrices."""

    def __init__(self, network: Network) -> None:
        """Raises TypeError for a network with layers that have no stacked form."""
        self._layers: list[tuple[str, nn.Module]] = []
        for path, module in network.named_modules(remove_duplicate=False):
            if type(module) in (Network, nn.Sequential):
                continue
            if not _has_stacked_form(module):
                raise TypeError(f"{path} is a {module}, which has no stacked form")
            self._layers.append((path, module))

    def logits(
        self, inputs: Tensor, weights: Mapping[str, Tensor], are_shared: bool = False
    ) -> Tensor:
        """[R, B, C]. inputs: [R, B, ...]; [B, ...] if all networks take the same."""
        now = inputs.flatten(1 if are_shared else 2)
        for path, layer in self._layers:
            if isinstance(layer, nn.ReLU):
                now = now.relu()
            if not isinstance(layer, nn.Linear):
                continue
            weight, bias = weights[f"{path}.weight"], weights[f"{path}.bias"]
            if now.dim() == 2:  # one product: the networks' outputs lie beside each other
                outputs = F.linear(now, weight.flatten(0, 1), bias.flatten())
                now = outputs.view(len(now), *bias.shape).transpose(0, 1)
            elif weight.shape[1] < weight.shape[2]:
                # Transposed: the gradient of a layer that narrows is then a fast product.
                now = torch.baddbmm(bias[:, :, None], weight, now.transpose(1, 2)).transpose(1, 2)
            else:
                now = torch.baddbmm(bias[:, None], now, weight.transpose(1, 2))
        return now.float() if now.dtype == torch.bfloat16 else now


def _has_stacked_form(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Linear) and layer.bias is None:
        return False
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        return False
    return type(layer) in LAYERS


class StackedStep:
    """One training step of R trials, whose settings differ in numbers alone."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        network: Network,
        weights: Weights,
        device: torch.device,
    ) -> None:
        self._network = StackedNetwork(network)
        self._weights = weights
        self._method = configs[0].method
        self._numbers = [torch.zeros(len(configs), 1, device=device) for _ in numbers(self._method)]
        self.restart(configs)

    def restart(self, configs: Sequence[TrialConfig]) -> None:
        """Take the numbers of other trials."""
        rows = [list(numbers(config.method)) for config in configs]
        for ours, theirs in zip(self._numbers, zip(*rows, strict=True), strict=True):
            ours.copy_(torch.tensor(theirs)[:, None])

    def take(
        self, now: Choices, train: DeviceSplit, precision: AbstractContextManager[Any]
    ) -> Tensor:
        """Update the weights; the losses [R]. precision: of the network's pass."""
        rows, size = now.train["labels"].shape
        flat = {
            name: values if name == "images" else values.flatten(0, 1)
            for name, values in now.train.items()
        }
        found = train.batch(flat)
        images = found.images.view(rows, size, *found.images.shape[1:])
        batch = Batch(images, now.train["labels"], now.train["indices"], now.method)
        if self._method.overrides("prepare"):
            unused = torch.Generator()
            batch = self._for_each(lambda method, own: method.prepare(own, unused), batch)
        with precision:
            logits = self._network.logits(batch.images, self._weights.leaves)
        losses = self._losses(logits, batch.targets, now.progress)
        self._weights.backward(losses.sum())
        self._weights.update(now.learning_rate[:, None])
        return losses.detach()

    def predicted(self, inputs: Tensor) -> Tensor:
        """[R, N, C]: what all networks make of the same samples [N, ...]."""
        return self._network.logits(inputs, self._weights.leaves, are_shared=True)

    def _losses(self, logits: Tensor, targets: Tensor | Mixed, progress: Tensor) -> Tensor:
        """[R]. logits: [R, B, C]. targets: with a leading dimension."""
        if not self._method.elementwise:
            return self._for_each(
                lambda method, *own: method.loss_of(*own, progress), logits, targets
            )
        method = with_numbers(self._method, iter(self._numbers))
        if not isinstance(targets, Mixed):
            return method.loss(logits, targets, progress).flatten()
        first, second = (
            method.loss(logits, each, progress).flatten()
            for each in (targets.first, targets.second)
        )
        return targets.share * first + (1 - targets.share) * second

    def _for_each(self, function: Callable[..., Any], *values: Any) -> Any:
        """What a function gives of each trial's method and values, with a leading dimension."""

        def called(tensors: list[Tensor], *own: Any) -> Any:
            method: Method = with_numbers(self._method, iter(tensors))
            return function(method, *own)

        return for_each(called, [each[:, 0] for each in self._numbers], *values)


def together(rows: Sequence[Choices]) -> Choices:
    """The choices of all trials as one."""
    train, method = (
        {name: torch.stack([part[name] for part in parts], 1) for name in parts[0]}
        for parts in ([row.train for row in rows], [row.method for row in rows])
    )
    rates = torch.stack([row.learning_rate for row in rows], 1)
    return Choices(rows[0].progress, rates, train, {}, method)
