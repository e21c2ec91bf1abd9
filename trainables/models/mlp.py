"""Multilayer perceptron, for the smallest studies."""

from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from trainables.fields import number
from trainables.model import Model, Network


@dataclass(frozen=True)
class Mlp(Model):
    width: int = number(128, low=1, doc="units per hidden layer")
    depth: int = number(1, low=0, doc="hidden layers; 0 is logistic regression")

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        channels, height, width = input_shape
        sizes = [channels * height * width] + self.depth * [self.width]
        features: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes):
            features += [nn.Linear(before, after), nn.ReLU()]
        return Network(nn.Sequential(*features), nn.Linear(sizes[-1], num_classes))
