"""Small convolutional network for images from 8x8 to 64x64."""

from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from trainables.fields import number
from trainables.model import Model, Network


@dataclass(frozen=True)
class Cnn(Model):
    """Three 3x3 convolutions, width to 4 width, each halving the image, then average pooling."""

    width: int = number(32, low=1, doc="channels of the first convolution")

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        sizes = (input_shape[0], self.width, 2 * self.width, 4 * self.width)
        features: list[nn.Module] = []
        for before, after in pairwise(sizes):
            # Batch norm provides the bias.
            features += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)]
            features += [nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
        features += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return Network(nn.Sequential(*features), nn.Linear(sizes[-1], num_classes))
