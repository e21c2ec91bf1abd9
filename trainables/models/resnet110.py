"""ResNet-110 for CIFAR. He et al. 2016, Section 4.2; or the one of Mukhoti et al. 2020."""

from dataclasses import dataclass

from torchvision.models.resnet import Bottleneck

from trainables.fields import choice
from trainables.model import Model, Network
from trainables.models.shared.resnet import four_stage_resnet, three_stage_resnet


@dataclass(frozen=True)
class Resnet110(Model):
    """Two networks: 1.7 million parameters in He et al. 2016, 45 million in Mukhoti et al. 2020."""

    blocks: str = choice(
        "basic",
        "bottleneck",
        doc="basic: 54 blocks, 16 to 64 wide; bottleneck: 36, 256 to 2048 wide (focal loss code)",
    )

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        if self.blocks == "bottleneck":
            return four_stage_resnet(Bottleneck, (3, 4, 26, 3), input_shape, num_classes)
        return three_stage_resnet(18, 16, input_shape, num_classes, projections=False)
