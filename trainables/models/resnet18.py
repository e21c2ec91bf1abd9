"""ResNet-18 for small images. He et al. 2016."""

from dataclasses import dataclass

from torchvision.models.resnet import BasicBlock

from trainables.models.shared.resnet import SmallImageResnet


@dataclass(frozen=True)
class Resnet18(SmallImageResnet):
    """torchvision's, with the small-image stem."""

    block = BasicBlock
    layers = (2, 2, 2, 2)
