"""What every calibration method may override: the smallest hook that says it.

The learner calls, each epoch, `order`; each batch, `prepare`, then `step` (which calls `loss`), then `observe`.
State goes in and comes out; nothing hides on the method. A method that wraps another forwards every hook to it.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from trainables.fields import FieldError, Settings
from trainables.model import Network


class Batch(NamedTuple):
    """images: [N, C, H, W] float32, normalised. targets: labels [N] int64 or soft [N, K]. indices: [N], into train."""

    images: Tensor
    targets: Tensor
    indices: Tensor


class Task(NamedTuple):
    """What a method may know before training starts."""

    num_classes: int
    num_samples: int
    device: torch.device
    generator: torch.Generator


class Trainer(Protocol):
    """What a method's own `step` may use of the learner."""

    network: Network

    @property
    def progress(self) -> float:
        """Share of training done, in [0, 1)."""

    def update(self, loss: Tensor) -> None:
        """Backward and one step of the optimizer."""


# Tensors, numbers, text and containers of them: it travels in `last.pt`, which is read without unpickling code.
State = Any


@dataclass(frozen=True)
class Method(Settings, ABC):
    """Fields are hyperparameters, named as in the paper, with their valid range."""

    def start(self, task: Task) -> State:
        """State before the first epoch; none by default."""
        return None

    def order(self, state: State, n: int, generator: torch.Generator) -> Tensor:
        """Indices [M] of the train samples the coming epoch takes, in order: by default all n, shuffled."""
        return torch.randperm(n, generator=generator)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The batch as it enters the network."""
        return batch

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        """Mean over samples. logits: [N, K]. progress: share of training done, in [0, 1)."""
        raise TypeError(f"{type(self).__name__} must override loss (or step).")

    def step(self, learner: Trainer, batch: Batch) -> tuple[Tensor, Tensor]:
        """Forward, backward, update. Returns the loss and the logits [N, K], both detached."""
        logits = learner.network(batch.images)
        loss = self.loss(logits, batch.targets, learner.progress)
        learner.update(loss)
        return loss.detach(), logits.detach()

    def observe(self, state: State, batch: Batch, logits: Tensor) -> State:
        """Called after the update; returns the new state."""
        return state


@dataclass(frozen=True)
class AuxiliaryMethod(Method, ABC):
    """A term added to the loss of another method, `base`; every other hook is the base's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self._base()).step is not Method.step:
            name = type(self._base()).__name__
            raise FieldError("base", f"{name} takes training steps of its own; no term can be added to its loss.")

    def _base(self) -> Method:
        base: Method = self.base  # type: ignore[attr-defined]  # each such method declares the field, last
        return base

    def start(self, task: Task) -> State:
        return self._base().start(task)

    def order(self, state: State, n: int, generator: torch.Generator) -> Tensor:
        return self._base().order(state, n, generator)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return self._base().prepare(batch, generator)

    def observe(self, state: State, batch: Batch, logits: Tensor) -> State:
        return self._base().observe(state, batch, logits)


def require_labels(method: Method, targets: Tensor) -> Tensor:
    """The targets as labels [N]. Raises TypeError where they are soft: the method has no definition for those."""
    if targets.ndim != 1:
        raise TypeError(f"{type(method).__name__} takes labels [N], got soft targets {list(targets.shape)}.")
    return targets
