"""Wide-ResNet-26-10 for small images. Zagoruyko & Komodakis 2016, as in Mukhoti et al. 2020."""

from dataclasses import dataclass

from trainables.model import Model, Network
from trainables.models.shared.resnet import three_stage_resnet


@dataclass(frozen=True)
class WideResnet2610(Model):
    """Three stages of four basic blocks, 160 to 640 wide; 26 convolutions outside the shortcuts.

    The authors' WRN-28-10 has the same widths and number of blocks, but normalises before each
    convolution.
    """

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        return three_stage_resnet(4, 160, input_shape, num_classes, projections=True)
