"""Methods that learn parameters of their loss by differentiating through a look-ahead step.

Bohdal et al. 2023, Algorithm 1, and Wang & Golebiowski 2024, Algorithm 1. phi are the learned
parameters, theta the network's weights. For each batch: theta' = theta - eta grad_theta L(theta,
phi) keeps its graph; the outer loss of theta' on a meta batch is differentiated by phi; Adam
updates phi; then the optimizer updates theta with a separate gradient.

The papers leave open how long the look-ahead step is. phi changes its length far more than its
direction, and a shorter step looks like an improvement where the step harms: with high gammas the
gradient then raises gamma on and on. `length: constant`, which is ours, divides the slope by its
norm and multiplies it by the same number held constant: the outer loss keeps its value, and its
gradient by phi is of the direction alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables import methods
from trainables.fields import choice, number, setting, words_or_number
from trainables.method import (
    Batch,
    Method,
    State,
    Step,
    Task,
    Trainer,
    require_labels,
)
from trainables.model import Network

Parameters = dict[str, Tensor]
# The fields of each outer loss.
OUTER_FIELDS = {"sece": ("bandwidth", "kernel"), "dece": ("bins",), "gap": ()}
META_BATCH = 512  # samples of meta in a step, at most, with `meta_batch: auto`
META_BATCH_DOC = f"samples of meta in a step; auto: {META_BATCH}; of a smaller meta split, all"


class Forward(NamedTuple):
    """A network's features [N, D] and logits [N, K] for a batch."""

    features: Tensor
    logits: Tensor


def adam_step(
    phi: Parameters, gradients: Parameters, moments: State, lr: float
) -> tuple[Parameters, State]:
    """phi after one step, and the moments. Kingma & Ba 2015, Algorithm 1, as published."""
    count = moments["count"] + 1
    moved = {}
    first = {}
    second = {}
    for name, gradient in gradients.items():
        first[name] = 0.9 * moments["first"][name] + 0.1 * gradient
        second[name] = 0.999 * moments["second"][name] + 0.001 * gradient.square()
        mean = first[name] / (1 - 0.9**count)
        square = second[name] / (1 - 0.999**count)
        moved[name] = phi[name] - lr * mean / (square.sqrt() + 1e-8)
    return moved, {"count": count, "first": first, "second": second}


def squared_gap(logits: Tensor, labels: Tensor) -> Tensor:
    """(mean confidence - accuracy)^2 of a batch, ours. logits: [N, K]. labels: [N] int64.

    The hits are constants. Gaps of opposite sign cancel between confidences.
    """
    confidence, predicted = logits.softmax(dim=-1).max(dim=-1)
    hit = (predicted == labels).to(logits.dtype)
    return (confidence.mean() - hit.mean()).square()


def of_constant_length(slopes: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The slopes, whose joint norm is a constant to whatever differentiates them."""
    # A slope of 0 has a norm that can be differentiated.
    norm = (torch.stack([slope.square().sum() for slope in slopes]).sum() + 1e-20).sqrt()
    return tuple(slope * (norm.detach() / norm) for slope in slopes)


@dataclass(frozen=True)
class LookaheadMethod(Method, ABC):
    """The base of these methods. State: {phi: {name: tensor}, adam: its moments, and more}.

    By default the meta batch affects the network only through phi: its gradient is kept out of
    theta's (`leak`), and batch norm is frozen on it (`meta_batch_norm`). The released base code
    (meta-calibration) differs in both, sums over the batch in the look-ahead (`reduction`), and
    updates phi first: `leak: true, meta_batch_norm: train, reduction: sum, moves_first: phi, outer:
    dece, outer_cross_entropy: 2` is that code up to scale: the weights move by the mean loss, not
    the sum, and the leaked loss added to it is twice the code's outer loss.
    """

    outer: str = choice(
        "sece", "dece", "gap", doc="outer loss: calibration error of the meta batch; gap is ours"
    )
    bandwidth: float = number(0.1, above=0, doc="bandwidth of the outer SECE")
    kernel: str = choice("normalized", "as_printed", doc="weights of the outer SECE, as in sece")
    bins: int = number(15, low=1, doc="bins of the outer DECE")
    outer_cross_entropy: float = number(0.0, low=0, doc="weight of cross-entropy in the outer loss")
    meta_lr: float = number(1e-3, above=0, doc="Adam's learning rate for the learned parameters")
    lookahead: str = choice(
        "head", "all", doc="weights in the look-ahead step: the last layer's, or all"
    )
    length: str = choice(
        "free", "constant", doc="constant: phi's gradient is of the look-ahead's direction alone"
    )
    meta_batch: int | str = words_or_number("batch_size", "auto", low=1, doc=META_BATCH_DOC)
    moves_first: str = choice("theta", "phi", doc="phi: the weights are updated with the new phi")
    reduction: str = choice("mean", "sum", doc="reduction over the batch of the look-ahead loss")
    leak: bool = setting(
        False, doc="add the meta batch's gradient to the weights', as in the base code"
    )
    meta_batch_norm: str = choice("frozen", "train", doc="batch norm mode on the meta batch")

    @property
    def needs_meta(self) -> bool:
        return True

    @property
    def weighable(self) -> bool:
        """The training loss, not the outer one."""
        return True

    @property
    def differentiates_twice(self) -> bool:
        return self.lookahead == "all"

    @property
    def inert(self) -> dict[str, str]:
        needed = OUTER_FIELDS[self.outer]
        others = (name for names in OUTER_FIELDS.values() for name in names if name not in needed)
        return dict.fromkeys(others, f"outer: {self.outer}")

    def meta_size(self, batch_size: int) -> int:
        if isinstance(self.meta_batch, int):
            return self.meta_batch
        return META_BATCH if self.meta_batch == "auto" else batch_size

    @cached_property
    def _outer(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The calibration error of logits and labels: a method's term, with the same settings."""
        if self.outer == "gap":
            return squared_gap
        shared = {name: getattr(self, name) for name in OUTER_FIELDS[self.outer]}
        return methods.find(self.outer)(**shared).term

    @abstractmethod
    def initial(self, task: Task) -> Parameters:
        """phi before the first step."""

    @abstractmethod
    def training_loss(
        self, head: nn.Module, forward: Forward, labels: Tensor, phi: Parameters
    ) -> Tensor:
        """L(theta, phi), a mean over samples."""

    def noted(self, state: State, batch: Batch, features: Tensor) -> State:
        """The state with the method's record of this batch; called with the new phi in it."""
        return state

    def start(self, task: Task) -> State:
        phi = self.initial(task)
        first, second = (
            {name: torch.zeros_like(value) for name, value in phi.items()} for _ in range(2)
        )
        count = torch.zeros((), device=task.device, dtype=torch.float64)
        return {"phi": phi, "adam": {"count": count, "first": first, "second": second}}

    def step(self, learner: Trainer, state: State, batch: Batch) -> Step:
        assert isinstance(batch.targets, Tensor)
        network = learner.network
        labels = require_labels(self, batch.targets)
        phi = {name: value.detach().requires_grad_() for name, value in state["phi"].items()}
        features = learner.apply(network.features, batch.images)
        forward = Forward(features, learner.apply(network.head, features))
        inner = self.training_loss(network.head, forward, labels, phi)
        if self.reduction == "sum":
            inner = inner * len(labels)
        outer = self._outer_loss(learner, self._looked_ahead(network, inner, learner.learning_rate))
        found = torch.autograd.grad(outer, list(phi.values()), retain_graph=True)
        gradients = dict(zip(phi, found, strict=True))
        moved, adam = adam_step(state["phi"], gradients, state["adam"], self.meta_lr)
        acting = moved if self.moves_first == "phi" else state["phi"]
        loss = self.training_loss(network.head, forward, labels, acting)
        learner.update(loss + outer if self.leak else loss)
        state = self.noted({**state, "phi": moved, "adam": adam}, batch, features.detach())
        return Step(loss.detach(), forward.logits.detach(), state)

    def _looked_ahead(self, network: Network, inner: Tensor, eta: float | Tensor) -> Parameters:
        """The weights after gradient descent on the inner loss, as functions of phi."""
        module = network.head if self.lookahead == "head" else network
        weights = dict(module.named_parameters())
        slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        if self.length == "constant":
            slopes = of_constant_length(slopes)
        slope_of = dict(zip(weights, slopes, strict=True))
        return {name: weight - eta * slope_of[name] for name, weight in weights.items()}

    def _outer_loss(self, learner: Trainer, weights: Parameters) -> Tensor:
        """The outer loss of the meta batch under the look-ahead weights."""
        network = learner.network
        meta = learner.meta_batch()
        assert isinstance(meta.targets, Tensor)
        network.train(self.meta_batch_norm == "train")
        if self.lookahead == "head":
            with torch.set_grad_enabled(self.leak):  # the features do not depend on phi
                features = learner.apply(network.features, meta.images)
            logits = learner.apply(network.head, features, weights)
        else:
            logits = learner.apply(network, meta.images, weights)
        network.train()
        error = self._outer(logits, meta.targets)
        return error + self.outer_cross_entropy * F.cross_entropy(logits, meta.targets)
