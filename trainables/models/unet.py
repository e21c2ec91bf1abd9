"""U-Net, a class for every pixel. Ronneberger et al. 2015."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.fields import number
from trainables.model import Model, Network


@dataclass(frozen=True)
class Unet(Model):
    """Two 3x3 convolutions a level, each with batch norm; `depth` times half as high and wide.

    Unlike the paper's it pads: the logits have the height and width of the images, whatever these
    are.
    """

    per_position: ClassVar[bool] = True

    width: int = number(12, low=1, doc="channels of the first level; each level below has twice")
    depth: int = number(3, low=1, doc="levels below the first")

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        features = _Levels(input_shape[0], self.width, self.depth)
        return Network(features, nn.Conv2d(self.width, num_classes, 1))


class _Levels(nn.Module):
    """[N, C, H, W] -> [N, width, H, W], padded inside to a multiple of 2^depth."""

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.side = 2**depth
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            _convolutions(before, after) for before, after in pairwise([channels, *widths])
        )
        self.up = nn.ModuleList(
            _convolutions(below + beside, beside) for beside, below in pairwise(widths)
        )

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        # 0 is the mean of normalised images.
        found = F.pad(images, (0, -width % self.side, 0, -height % self.side))
        beside = []
        for level, convolutions in enumerate(self.down):
            found = convolutions(F.max_pool2d(found, 2) if level else found)
            beside.append(found)
        below = beside.pop()
        for convolutions in reversed(self.up):
            # To the nearest, whose gradient a GPU adds in a fixed order; bilinear has none.
            above = F.interpolate(below, scale_factor=2.0, mode="nearest")
            below = convolutions(torch.cat([beside.pop(), above], dim=1))
        return below[:, :, :height, :width]


def _convolutions(before: int, after: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (before, after):
        # Batch norm provides the bias.
        layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)]
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)
