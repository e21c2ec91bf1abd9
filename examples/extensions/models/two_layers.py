"""A network of your own: features, then a linear head. An example."""

import math
from dataclasses import dataclass

from torch import nn

from trainables import Model, Network, number


@dataclass(frozen=True)
class TwoLayers(Model):
    hidden: int = number(32, low=1, doc="units of the hidden layer")

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        features = nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(input_shape), self.hidden), nn.ReLU()
        )
        return Network(features, nn.Linear(self.hidden, num_classes))
