"""A network of an extension."""

from dataclasses import dataclass
from math import prod

from torch import nn

from trainables import Model, Network, number


@dataclass(frozen=True)
class Listed(Model):
    """One hidden layer."""

    width: int = number(16, low=1, doc="of the layer")

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        hidden = nn.Linear(prod(input_shape), self.width)
        features = nn.Sequential(nn.Flatten(), hidden, nn.ReLU())
        return Network(features, nn.Linear(self.width, num_classes))
