"""The optimizer, and the learning rate as a pure function of progress in [0, 1]."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from trainables.fields import Settings, choice, number


@dataclass(frozen=True)
class Optimizer(Settings):
    """How the weights move. `momentum` is SGD's; Adam keeps its published betas."""

    name: str = choice("sgd", "adam", "adamw", doc="the update rule")
    lr: float = number(0.1, above=0, doc="learning rate at the start")
    momentum: float = number(0.9, low=0, below=1, doc="of SGD")
    weight_decay: float = number(5.0e-4, low=0, doc="L2 penalty; decoupled in adamw")
    schedule: str = choice("cosine", "constant", doc="how the learning rate falls over training")

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
        """lr at a share of training done. Cosine: Loshchilov & Hutter 2017, one period, down to 0."""
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * progress))
