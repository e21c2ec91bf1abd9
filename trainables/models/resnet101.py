"""ResNet-101 for small images. He et al. 2016."""

from dataclasses import dataclass

from torchvision.models.resnet import Bottleneck

from trainables.models.shared.resnet import SmallImageResnet


@dataclass(frozen=True)
class Resnet101(SmallImageResnet):
    """torchvision's, with the small-image stem."""

    block = Bottleneck
    layers = (3, 4, 23, 3)
