"""Several trials as one training step: their networks as one, and a method's loss once for its
trials.

Rows are in the order of their numbers; trials of one number share their batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainables.at_once import for_each
from trainables.config import TrialConfig, to_plain
from trainables.loading.batches import DeviceSplit
from trainables.method import Batch, Method, Mixed, numbers, with_numbers
from trainables.model import Network
from trainables.plain import without_numbers
from trainables.training.choices import Choices
from trainables.training.weights import Weights

LAYERS = (nn.Flatten, nn.Linear, nn.ReLU, nn.Identity)


class Part(NamedTuple):
    """Batches [G, B, ...], and of each the rows that take it, [G, L]."""

    images: Tensor
    rows: Tensor


class StackedNetwork:
    """K networks of equal layers: linear layers are one product of K matrices. Rows that take the
    same batch are one matrix in the first of them."""

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
        self, parts: Sequence[Part], weights: Mapping[str, Tensor], kept: Tensor | None = None
    ) -> Tensor:
        """[K, B, C]. kept: where the K rows are among those of the parts; None: they are these."""
        now: Tensor | None = None
        for path, layer in self._layers:
            if isinstance(layer, nn.Linear):
                weight, bias = weights[f"{path}.weight"], weights[f"{path}.bias"]
                if now is None:
                    now = _first(parts, weight, bias, kept)
                else:
                    now = torch.baddbmm(bias[:, None], now, weight.transpose(1, 2))
            elif isinstance(layer, nn.ReLU):
                assert now is not None, "samples go into a linear layer"
                now = now.relu()
        assert now is not None
        return now.float() if now.dtype == torch.bfloat16 else now


def _has_stacked_form(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Linear) and layer.bias is None:
        return False
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        return False
    return type(layer) in LAYERS


def _first(parts: Sequence[Part], weight: Tensor, bias: Tensor, kept: Tensor | None) -> Tensor:
    """The first linear layer: [K, B, H]."""
    if kept is not None:
        rows = torch.cat([part.rows.flatten() for part in parts])
        weight = weight.index_select(0, rows)
        bias = bias.index_select(0, rows)
    found = []
    start = 0
    for images, rows in parts:
        own = weight.narrow(0, start, rows.numel())
        offset = bias.narrow(0, start, rows.numel())
        start += rows.numel()
        groups, count = rows.shape
        matrix = own.reshape(groups, -1, own.shape[2]).transpose(1, 2)
        output = torch.baddbmm(offset.reshape(groups, 1, -1), images.flatten(2), matrix)
        each_row = output.view(*output.shape[:2], count, -1).transpose(1, 2)
        found.append(each_row.flatten(0, 1))
    output = torch.cat(found)
    return output if kept is None else output.index_select(0, kept)


class LossGroup:
    """Trials whose losses differ in numbers alone, and their rows [R]."""

    def __init__(self, methods: Sequence[Method], rows: list[int], device: torch.device) -> None:
        self.method = methods[0]
        self.rows = torch.tensor(rows, device=device)
        self.numbers = [torch.zeros(len(rows), device=device) for _ in numbers(self.method)]
        # Each then has images of its own.
        self.prepares = self.method.overrides("prepare")
        self.restart(methods)

    def restart(self, methods: Sequence[Method]) -> None:
        """Take the numbers of other trials."""
        for ours, theirs in zip(
            self.numbers, zip(*map(numbers, methods), strict=True), strict=True
        ):
            ours.copy_(torch.tensor(theirs))

    def prepared(self, batch: Batch) -> Batch:
        """The trials' batches, all with a leading dimension, as the method prepares them."""
        unused = torch.Generator()

        def of_one(method: Method, batch: Batch) -> Batch:
            return method.prepare(batch, unused)

        return self._of_each(of_one, batch)

    def losses(self, logits: Tensor, targets: Tensor | Mixed, progress: Tensor) -> Tensor:
        """[R]. logits: [R, B, C]. targets: with a leading dimension."""

        def of_one(method: Method, logits: Tensor, targets: Tensor | Mixed) -> Tensor:
            return method.loss_of(logits, targets, progress)

        return self._of_each(of_one, logits, targets)

    def _of_each(self, of_one: Any, *values: Any) -> Any:
        """What a function gives of each trial's method and values, with a leading dimension."""

        def called(tensors: list[Tensor], *own: Any) -> Any:
            return of_one(with_numbers(self.method, iter(tensors)), *own)

        return for_each(called, self.numbers, *values)


class StackedStep:
    """One training step of K trials. configs: in the order of their rows, as `in_order` has it."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        network: Network,
        weights: Weights,
        device: torch.device,
    ) -> None:
        self.network = StackedNetwork(network)
        self._weights = weights
        self._places = list(alike(configs).values())
        self._groups = [
            LossGroup([configs[row].method for row in rows], rows, device) for rows in self._places
        ]
        places = [config.number for config in configs]
        batch_of = torch.tensor([sorted(set(places)).index(number) for number in places])
        # Of each group's rows, the batches they take.
        self._batches = [batch_of[rows].to(device) for rows in self._places]
        taken = []
        sharing = [group.rows.tolist() for group in self._groups if not group.prepares]
        if sharing:
            taken.append(_by_batch(list(chain(*sharing)), batch_of.tolist()))
        taken += [group.rows[:, None] for group in self._groups if group.prepares]
        self._rows = [rows.to(device) for rows in taken]
        order = list(chain(*(rows.flatten().tolist() for rows in taken)))
        self._kept: Tensor | None = None
        if order != list(range(len(configs))):
            places = [order.index(row) for row in range(len(configs))]
            self._kept = torch.tensor(places, device=device)
        self._all_rows = torch.arange(len(configs), device=device)[None]

    def restart(self, configs: Sequence[TrialConfig]) -> None:
        """Take the numbers of other trials in the same places."""
        for group, rows in zip(self._groups, self._places, strict=True):
            group.restart([configs[row].method for row in rows])

    def chosen(self, rows: Sequence[Choices], batches: Sequence[Mapping[str, Tensor]]) -> Choices:
        """The choices of all rows as one. batches: of each number."""
        train = {name: torch.stack([each[name] for each in batches], 1) for name in batches[0]}
        drawn = {}
        for place, members in enumerate(self._places):
            for name in rows[members[0]].method:
                values = [rows[row].method[name] for row in members]
                drawn[f"{name}:{place}"] = torch.stack(values, 1)
        rates = torch.stack([each.learning_rate for each in rows], 1)
        return Choices(rows[0].progress, rates, train, {}, drawn)

    def take(
        self, now: Choices, train: DeviceSplit, precision: AbstractContextManager[Any]
    ) -> Tensor:
        """Update the weights; the losses [K]. precision: of the network's pass."""
        shape = now.train["labels"].shape
        flat = {
            name: values if name == "images" else values.flatten(0, 1)
            for name, values in now.train.items()
        }
        images = train.batch(flat).images
        images = images.view(*shape, *images.shape[1:])
        batches = [images] * any(not group.prepares for group in self._groups)
        targets: list[Tensor | Mixed] = []
        for place, (group, taken) in enumerate(zip(self._groups, self._batches, strict=True)):
            labels, indices = (
                now.train[name].index_select(0, taken) for name in ("labels", "indices")
            )
            if not group.prepares:
                targets.append(labels)
                continue
            drawn = {
                name.rpartition(":")[0]: values
                for name, values in now.method.items()
                if name.rpartition(":")[2] == str(place)
            }
            own = group.prepared(Batch(images.index_select(0, taken), labels, indices, drawn))
            batches.append(own.images)
            targets.append(own.targets)
        with precision:
            parts = list(map(Part, batches, self._rows))
            logits = self.network.logits(parts, self._weights.leaves, self._kept)
        losses = logits.new_zeros(len(logits))
        for group, target in zip(self._groups, targets, strict=True):
            found = group.losses(logits.index_select(0, group.rows), target, now.progress)
            losses = losses.index_copy(0, group.rows, found)
        self._weights.backward(losses.sum())
        self._weights.update(now.learning_rate[:, None])
        return losses.detach()

    def predicted(self, images: Tensor) -> Tensor:
        """[K, N, C]: what all networks make of the same samples [N, ...]."""
        return self.network.logits([Part(images[None], self._all_rows)], self._weights.leaves)


def alike(configs: Sequence[TrialConfig]) -> dict[str, list[int]]:
    """The places of trials whose losses differ in numbers alone, by a key of what they share."""
    found: dict[str, list[int]] = {}
    for place, config in enumerate(configs):
        drawn = sorted(config.method.draw(1, 2, torch.Generator()))
        key = json.dumps([without_numbers(to_plain(config.method)), drawn], sort_keys=True)
        found.setdefault(key, []).append(place)
    return found


def in_order(configs: Sequence[TrialConfig]) -> list[int]:
    """The places of trials in the order of their rows, which does not depend on how they are given:
    those that share batches by number, then those with batches of their own."""
    keys = {place: key for key, places in alike(configs).items() for place in places}

    def place_of(place: int) -> tuple[Any, ...]:
        config = configs[place]
        whole = json.dumps(config.to_mapping(), sort_keys=True)
        own = config.method.overrides("prepare")
        shared = (config.number, keys[place])
        return own, *(reversed(shared) if own else shared), whole

    return sorted(range(len(configs)), key=place_of)


def _by_batch(rows: Sequence[int], batch_of: Sequence[int]) -> Tensor:
    """[G, L]: the rows that take each batch. Where there are fewer, a row is there again."""
    found = [[row for row in rows if batch_of[row] == batch] for batch in range(max(batch_of) + 1)]
    width = max(map(len, found))
    return torch.tensor([each + (width - len(each)) * [rows[0]] for each in found])
