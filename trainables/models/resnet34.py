"""ResNet-34 for small images. He et al. 2016."""

from dataclasses import dataclass

from torchvision.models.resnet import BasicBlock

from trainables.models.shared.resnet import SmallImageResnet


@dataclass(frozen=True)
class Resnet34(SmallImageResnet):
    """torchvision's, with the small-image stem."""

    block = BasicBlock
    layers = (3, 4, 6, 3)
