"""Several trials of one method as one training step: their networks as one, and their losses at
once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, islice
from typing import Any

import torch
from torch import Tensor, nn

from trainables.config import TrialConfig
from trainables.loading.batches import DeviceSplit
from trainables.method import Batch, Method, Mixed, with_class_weights
from trainables.model import Network
from trainables.stacks import loss_key
from trainables.tensors import numbers, with_numbers
from trainables.training.choices import Choices
from trainables.training.weights import Weights
from trainables.vectorized import for_each

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
        # Features come before samples: the gradient of a layer is then a fast product.
        now = inputs.flatten(1 if are_shared else 2).mT
        for path, layer in self._layers:
            if isinstance(layer, nn.ReLU):
                now = now.relu()
            if not isinstance(layer, nn.Linear):
                continue
            weight, bias = weights[f"{path}.weight"], weights[f"{path}.bias"]
            if now.dim() == 2:
                outputs = torch.addmm(bias.flatten()[:, None], weight.flatten(0, 1), now)
                now = outputs.view(*bias.shape, -1)
            else:
                now = torch.baddbmm(bias[:, :, None], weight, now)
        return now.mT.float() if now.dtype == torch.bfloat16 else now.mT


def _has_stacked_form(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Linear) and layer.bias is None:
        return False
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        return False
    return type(layer) in LAYERS


class Part:
    """Rows of a stack that lie beside each other, and whose losses differ in numbers alone."""

    def __init__(self, methods: Sequence[Method], device: torch.device) -> None:
        self.method = methods[0]
        self.prepares = self.method.overrides("prepare")
        self.at_once = self.method.elementwise
        count = len(methods)
        self._numbers = [torch.zeros(count, 1, device=device) for _ in numbers(self.method)]
        self.restart(methods)

    def restart(self, methods: Sequence[Method]) -> None:
        """Take the numbers of other trials."""
        rows = [list(numbers(method)) for method in methods]
        for ours, theirs in zip(self._numbers, zip(*rows, strict=True), strict=True):
            ours.copy_(torch.tensor(theirs)[:, None])

    def prepared(self, batch: Batch) -> Batch:
        """The trials' batches, all with a leading dimension, as the method prepares them."""
        unused = torch.Generator()
        return self._for_each(lambda method, own: method.prepare(own, unused), batch)

    def losses(self, logits: Tensor, targets: Tensor | Mixed, progress: Tensor) -> Tensor:
        """[R]. logits: [R, B, C]. targets: with a leading dimension."""
        if not self.at_once:
            return self._for_each(
                lambda method, *own: method.loss_of(*own, progress), logits, targets
            )
        method = with_numbers(self.method, iter(self._numbers))
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
            method: Method = with_numbers(self.method, iter(tensors))
            return function(method, *own)

        return for_each(called, [each[:, 0] for each in self._numbers], *values)


class StackedStep:
    """One training step of R trials, those of a `loss_key` beside each other."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        network: Network,
        weights: Weights,
        device: torch.device,
    ) -> None:
        self._network = StackedNetwork(network)
        self._weights = weights
        self._counts = list(Counter(map(loss_key, configs)).values())
        self._parts = [Part(methods, device) for methods in self._methods(configs)]

    def weigh(self, weights: Tensor, row: int) -> None:
        """Take these weights [K] of classes into the losses of a row, and of those like it."""
        ends = zip(self._parts, accumulate(self._counts), strict=True)
        part = next(part for part, end in ends if row < end)
        part.method = with_class_weights(part.method, weights)
        part.at_once = False

    def restart(self, configs: Sequence[TrialConfig]) -> None:
        """Take the numbers of other trials."""
        for part, methods in zip(self._parts, self._methods(configs), strict=True):
            part.restart(methods)

    def _methods(self, configs: Sequence[TrialConfig]) -> list[list[Method]]:
        """Of each part."""
        found = iter(configs)
        return [[each.method for each in islice(found, count)] for count in self._counts]

    def together(self, rows: Sequence[Choices]) -> Choices:
        """The choices of all trials as one."""
        train = _stacked([row.train for row in rows])
        rates = torch.stack([row.learning_rate for row in rows], 1)
        drawn: dict[str, Tensor] = {}
        found = iter(rows)
        for place, count in enumerate(self._counts):
            own = _stacked([row.method for row in islice(found, count)])
            drawn |= {f"{place}:{name}": values for name, values in own.items()}
        return Choices(rows[0].progress, rates, train, {}, drawn)

    def take(
        self, now: Choices, train: DeviceSplit, precision: AbstractContextManager[Any]
    ) -> Tensor:
        """Update the weights; the losses [R]. precision: of the network's pass."""
        shape = now.train["labels"].shape
        flat = {
            name: values if name == "images" else values.flatten(0, 1)
            for name, values in now.train.items()
        }
        found = train.batch(flat).images
        images = found.view(*shape, *found.shape[1:])
        batches = self._prepared(now, images)
        if any(part.prepares for part in self._parts):
            images = torch.cat([batch.images for batch in batches])
        with precision:
            logits = self._network.logits(images, self._weights.leaves)
        of_parts = zip(self._parts, torch.split(logits, self._counts), batches, strict=True)
        losses = torch.cat(
            [part.losses(own, batch.targets, now.progress) for part, own, batch in of_parts]
        )
        self._weights.backward(losses.sum())
        self._weights.update(now.learning_rate[:, None])
        return losses.detach()

    def _prepared(self, now: Choices, images: Tensor) -> list[Batch]:
        """Of each part, the batches of its trials as its method prepares them."""
        found = []
        start = 0
        for place, (part, count) in enumerate(zip(self._parts, self._counts, strict=True)):
            labels, indices = (now.train[name][start:][:count] for name in ("labels", "indices"))
            drawn = {
                name.partition(":")[2]: values
                for name, values in now.method.items()
                if name.partition(":")[0] == str(place)
            }
            batch = Batch(images[start:][:count], labels, indices, drawn)
            found.append(part.prepared(batch) if part.prepares else batch)
            start += count
        return found

    def predicted(self, inputs: Tensor) -> Tensor:
        """[R, N, C]: what all networks make of the same samples [N, ...]."""
        return self._network.logits(inputs, self._weights.leaves, are_shared=True)


def _stacked(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """By name, with a dimension for trials after the steps'."""
    return {name: torch.stack([row[name] for row in rows], 1) for name in rows[0]}
