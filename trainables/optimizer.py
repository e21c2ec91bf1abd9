"""The optimizer, and the learning rate as a pure function of progress in [0, 1]."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from trainables.fields import Settings, choice, number, numbers

# Of the one-cycle schedule, PyTorch's: the share of training in which it rises, from lr / 25 and down to lr / 250,000.
RISE, FIRST, LAST = 0.3, 1 / 25, 1 / 25e4


@dataclass(frozen=True)
class Optimizer(Settings):
    """How the weights move. `momentum` is SGD's; Adam keeps its published betas."""

    name: str = choice("sgd", "adam", "adamw", doc="the update rule")
    lr: float = number(0.1, above=0, doc="learning rate, the largest of its schedule")
    momentum: float = number(0.9, low=0, below=1, doc="of SGD")
    weight_decay: float = number(5.0e-4, low=0, doc="L2 penalty; decoupled in adamw")
    schedule: str = choice("cosine", "constant", "steps", "one_cycle", doc="the learning rate over training")
    steps: tuple[float, ...] = numbers((0.5, 0.75), above=0, below=1, doc="of `steps`: shares of training it falls at")
    factor: float = number(0.1, above=0, below=1, doc="of `steps`: what it is multiplied by at each")
    warmup: float = number(0.0, low=0, below=1, doc="share of training in which it first rises, linearly, from 0")
    clip: float | None = number(None, above=0, doc="largest norm of all gradients together; null: no limit")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The torch optimizer, fused: one call for all parameters."""
        parameters = list(parameters)
        if self.name == "sgd":
            return torch.optim.SGD(
                parameters, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True
            )
        rule = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[self.name]
        return rule(parameters, lr=self.lr, weight_decay=self.weight_decay, fused=True)

    def learning_rate(self, progress: float) -> float:
        """lr at a share of training done. During `warmup` on a line from 0 to where its schedule is by then."""
        if progress < self.warmup:
            return self._scheduled(self.warmup) * progress / self.warmup
        return self._scheduled(progress)

    def _scheduled(self, progress: float) -> float:
        """Cosine: Loshchilov & Hutter 2017, one period, down to 0. One cycle: Smith & Topin 2018 as PyTorch has it,
        two half cosines, momentum left as it is.
        """
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "steps":
            return self.lr * self.factor ** sum(progress >= step for step in self.steps)
        if self.schedule == "one_cycle":
            if progress < RISE:
                return self.lr * _half_cosine(FIRST, 1.0, progress / RISE)
            return self.lr * _half_cosine(1.0, LAST, (progress - RISE) / (1.0 - RISE))
        return self.lr * _half_cosine(1.0, 0.0, progress)


def _half_cosine(first: float, last: float, share: float) -> float:
    return last + (first - last) * 0.5 * (1.0 + math.cos(math.pi * share))
