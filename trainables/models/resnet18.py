"""ResNet-18 for small images. He et al. 2016; the 3x3 stride-1 stem without max-pool is usual for 32x32."""

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn
from torchvision.models import resnet18

from trainables.model import Model, Network


@dataclass(frozen=True)
class Resnet18(Model):
    """torchvision's, with another stem."""

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        layers = OrderedDict(resnet18(weights=None, num_classes=num_classes).named_children())
        layers["conv1"] = nn.Conv2d(input_shape[0], 64, 3, padding=1, bias=False)
        # As torchvision draws all its convolutions.
        nn.init.kaiming_normal_(layers["conv1"].weight, mode="fan_out", nonlinearity="relu")
        del layers["maxpool"]
        head = layers.pop("fc")
        layers["flatten"] = nn.Flatten()
        return Network(nn.Sequential(layers), head)
