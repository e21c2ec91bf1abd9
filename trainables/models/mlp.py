"""Multilayer perceptron: for rows of numbers, and the smallest studies of images."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import ClassVar

from torch import nn

from trainables.fields import number
from trainables.kinds import Kind
from trainables.model import Model, Network


@dataclass(frozen=True)
class Mlp(Model):
    takes: ClassVar[tuple[Kind, ...]] = ("image", "features")

    width: int = number(128, low=1, doc="units per hidden layer")
    depth: int = number(1, low=0, doc="hidden layers; 0 is logistic regression")

    @property
    def stackable(self) -> bool:
        return True

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> Network:
        sizes = [prod(input_shape)] + self.depth * [self.width]
        features: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes):
            features += [nn.Linear(before, after), nn.ReLU()]
        return Network(nn.Sequential(*features), nn.Linear(sizes[-1], num_classes))
