"""What every calibration method may override: the smallest hook that says it.

The learner calls, each epoch, `order`; each batch, `prepare`, then `step` (which calls `loss`), then `observe`; and
after the epoch `measured`. State goes in and comes out; nothing hides on the method. A method that wraps another
forwards every hook to it.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from trainables.fields import FieldError, Settings
from trainables.model import Network


class Mixed(NamedTuple):
    """Each sample is `share` of one and the rest of another: their labels [N] int64. share: in [0, 1]."""

    first: Tensor
    second: Tensor
    share: float


class Batch(NamedTuple):
    """images: [N, C, H, W] float32, normalised. indices: [N], into train (of mixed samples, the first's).

    targets: labels [N] int64, or soft [N, K], or what a method's `prepare` made of them.
    """

    images: Tensor
    targets: Tensor | Mixed
    indices: Tensor


class Step(NamedTuple):
    """What one training step leaves: the loss and the logits [N, K], both detached, and the method's state."""

    loss: Tensor
    logits: Tensor
    state: Any


class Task(NamedTuple):
    """What a method may know before training starts."""

    num_classes: int
    rows: Tensor  # [N] int64: which samples of the prepared train split are trained on
    device: torch.device
    generator: torch.Generator  # on the CPU
    network: Network
    data_digest: str

    @property
    def num_samples(self) -> int:
        return len(self.rows)


class Trainer(Protocol):
    """What a method's own hooks may use of the learner."""

    network: Network

    @property
    def progress(self) -> float:
        """Share of training done, in [0, 1)."""

    @property
    def learning_rate(self) -> float:
        """Of this moment."""

    @property
    def num_samples(self) -> int:
        """Of train, without what is kept for meta batches."""

    def update(self, loss: Tensor) -> None:
        """Backward and one step of the optimizer."""

    def meta_batch(self) -> Batch:
        """The next batch of the meta split, never augmented; for methods with `needs_meta`."""

    def train_logits(self) -> Tensor:
        """[num_samples, K]: the network as it is now, in evaluation mode, on train, not augmented."""


# Tensors, numbers, text and containers of them: it travels in `last.pt`, which is read without unpickling code.
State = Any


@dataclass(frozen=True)
class Method(Settings, ABC):
    """Fields are hyperparameters, named as in the paper, with their valid range."""

    @property
    def needs_meta(self) -> bool:
        """Whether a meta split is carved from train for it to learn on."""
        return False

    def overrides(self, hook: str) -> bool:
        """Whether it, or a method it wraps, does the hook in a way of its own."""
        return getattr(type(self), hook) is not getattr(Method, hook)

    def start(self, task: Task) -> State:
        """State before the first epoch; none by default. Raises FieldError where the task is none for this method."""
        return None

    def order(self, learner: Trainer, state: State, generator: torch.Generator) -> Tensor:
        """Indices [M] of the train samples the coming epoch takes, in order: by default all, shuffled."""
        return torch.randperm(learner.num_samples, generator=generator)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The batch as it enters the network. generator: on the CPU, of this epoch."""
        return batch

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        """Mean over samples. logits: [N, K]. progress: share of training done, in [0, 1)."""
        raise TypeError(f"{type(self).__name__} must override loss (or step).")

    def step(self, learner: Trainer, state: State, batch: Batch) -> Step:
        """Forward, backward, update. The loss of mixed samples is that of both labels, by their shares."""
        logits = learner.network(batch.images)
        if isinstance(batch.targets, Mixed):
            first, second, share = batch.targets
            loss = share * self.loss(logits, first, learner.progress)
            loss = loss + (1 - share) * self.loss(logits, second, learner.progress)
        else:
            loss = self.loss(logits, batch.targets, learner.progress)
        learner.update(loss)
        return Step(loss.detach(), logits.detach(), state)

    def observe(self, state: State, batch: Batch, logits: Tensor) -> State:
        """Called after the update; returns the new state."""
        return state

    def measured(self, state: State) -> dict[str, float]:
        """What the method itself tells of the epoch just trained, for its row of the history."""
        return {}


@dataclass(frozen=True)
class Wrapper(Method, ABC):
    """A method around another, `base`: every hook is the base's but those that are overridden."""

    def _base(self) -> Method:
        base: Method = self.base  # type: ignore[attr-defined]  # each such method declares the field, last
        return base

    def _bases(self) -> Iterator[Method]:
        """What it wraps, and what that wraps, and so on."""
        base: Method = self
        while isinstance(base, Wrapper):
            base = base._base()
            yield base

    @property
    def needs_meta(self) -> bool:
        return self._base().needs_meta

    def start(self, task: Task) -> State:
        return self._base().start(task)

    def order(self, learner: Trainer, state: State, generator: torch.Generator) -> Tensor:
        return self._base().order(learner, state, generator)

    def prepare(self, batch: Batch, generator: torch.Generator) -> Batch:
        return self._base().prepare(batch, generator)

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        return self._base().loss(logits, targets, progress)

    def observe(self, state: State, batch: Batch, logits: Tensor) -> State:
        return self._base().observe(state, batch, logits)

    def measured(self, state: State) -> dict[str, float]:
        return self._base().measured(state)

    def overrides(self, hook: str) -> bool:
        forwarded = getattr(type(self), hook) is getattr(Wrapper, hook)
        return self._base().overrides(hook) if forwarded else super().overrides(hook)

    def _refuse_base(self, hook: str, because: str) -> None:
        """Raise FieldError where the base, or what it wraps, has its own `hook`."""
        base = self._base()
        if base.overrides(hook):
            own, theirs = type(self).__name__, type(base).__name__
            mend = f" Put {theirs} around {own} instead." if isinstance(base, Wrapper) else ""
            raise FieldError("base", f"{theirs} {because}.{mend}")


@dataclass(frozen=True)
class AuxiliaryMethod(Wrapper, ABC):
    """`weight` times a term added to the loss of another method, `base`; every other hook is the base's."""

    def term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Of the batch, before its weight. logits: [N, K]. labels: [N] int64."""
        raise TypeError(f"{type(self).__name__} must override term (or loss).")

    def loss(self, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
        base = super().loss(logits, targets, progress)
        if type(self).term is AuxiliaryMethod.term:  # it overrides loss, and calls this for the base's
            return base
        weight: float = self.weight  # type: ignore[attr-defined]  # each such method declares the field
        return base + weight * self.term(logits, require_labels(self, targets))

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_base("step", "takes training steps of its own; no term can be added to its loss")


def require_labels(method: Method, targets: Tensor) -> Tensor:
    """The targets as labels [N]. Raises TypeError where they are soft: the method has no definition for those."""
    if targets.ndim != 1:
        raise TypeError(f"{type(method).__name__} takes labels [N], got soft targets {list(targets.shape)}.")
    return targets
