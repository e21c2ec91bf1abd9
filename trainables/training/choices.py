"""What an epoch decided beforehand, step by step, and a table of it on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Choices(NamedTuple):
    """An epoch's decisions for batches of one size: the first dimension is the step.

    progress: [S] float64. learning_rate: [S] float32. train, meta: the splits'
    (`DeviceSplit.decide`). method: the method's (`Method.draw`). Of a stack the next dimension is
    the trial; in train, the number.
    """

    progress: Tensor
    learning_rate: Tensor
    train: dict[str, Tensor]
    meta: dict[str, Tensor]
    method: dict[str, Tensor]

    @property
    def steps(self) -> int:
        return len(self.progress)

    def at(self, step: int) -> Choices:
        """The choices of one step."""
        rest = ({name: values[step] for name, values in part.items()} for part in self[2:])
        return Choices(self.progress[step], self.learning_rate[step], *rest)

    def values(self) -> Iterator[tuple[str, Tensor]]:
        """All choices, by a name of their own."""
        yield "progress", self.progress
        yield "learning_rate", self.learning_rate
        for part in ("train", "meta", "method"):
            for name, values in getattr(self, part).items():
                yield f"{part}.{name}", values


class Samples(NamedTuple):
    """An epoch's batches of one size, the same for all trials of a number: as in `Choices`."""

    progress: Tensor
    train: dict[str, Tensor]
    meta: dict[str, Tensor]


class ChoiceTable:
    """Choices as rows of bytes on the device, and a counter there: a step reads its row at once."""

    def __init__(self, choices: Choices, device: torch.device) -> None:
        self.layout = layout(choices)
        self._columns: dict[str, tuple[slice, torch.dtype, torch.Size]] = {}
        start = 0
        for name, values in _widest_first(choices):
            stop = start + values[0].numel() * values.itemsize
            self._columns[name] = slice(start, stop), values.dtype, values.shape[1:]
            start = stop
        self._width = -(-start // 8) * 8  # so that rows begin where a number of eight bytes may
        self._rows = torch.zeros(choices.steps, self._width, dtype=torch.uint8, device=device)
        self._next = torch.zeros(1, dtype=torch.int64, device=device)
        self._images: dict[str, Tensor] = {}

    def holds(self, choices: Choices) -> bool:
        return len(self._rows) >= choices.steps and self.layout == layout(choices)

    def receive(self, images: dict[str, Tensor]) -> None:
        """The next step's images, if streamed: {"train": uint8 [B, C, H, W], "meta": ...}."""
        for part, found in images.items():
            if part not in self._images:
                self._images[part] = torch.empty_like(found, device=self._rows.device)
            self._images[part].copy_(found, non_blocking=True)

    def fill(self, choices: Choices) -> None:
        """One copy to the device; the first row is next."""
        on_gpu = self._rows.is_cuda
        rows = torch.zeros(choices.steps, self._width, dtype=torch.uint8, pin_memory=on_gpu)
        for name, values in _widest_first(choices):
            part = self._columns[name][0]
            rows[:, part] = values.contiguous().view(choices.steps, -1).view(torch.uint8)
        self._rows[: choices.steps].copy_(rows, non_blocking=True)
        self._next.zero_()

    @property
    def written(self) -> list[Tensor]:
        """What `next` changes."""
        return [self._next]

    def next(self) -> Choices:
        """The choices of the next step."""
        row = self._rows.index_select(0, self._next)[0]
        self._next += 1
        alone: dict[str, Tensor] = {}
        parts: dict[str, dict[str, Tensor]] = {"train": {}, "meta": {}, "method": {}}
        for name, (part, dtype, shape) in self._columns.items():
            group, _, key = name.rpartition(".")
            place = parts[group] if group else alone
            place[key] = row[part].view(dtype).view(shape)
        for group, images in self._images.items():
            parts[group]["images"] = images
        return Choices(alone["progress"], alone["learning_rate"], **parts)


class HostTable(ChoiceTable):
    """Choices as they are, for a CPU, where Python takes every step."""

    def __init__(self) -> None:
        self._images = {}

    def holds(self, choices: Choices) -> bool:
        return True

    def fill(self, choices: Choices) -> None:
        self._choices = choices
        self._step = -1

    def next(self) -> Choices:
        self._step += 1
        return self._choices.at(self._step)


def layout(choices: Choices) -> tuple[Any, ...]:
    return tuple((name, values.dtype, values.shape[1:]) for name, values in choices.values())


def _widest_first(choices: Choices) -> list[tuple[str, Tensor]]:
    return sorted(choices.values(), key=lambda item: -item[1].itemsize)
