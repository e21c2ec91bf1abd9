"""DenseNet-121 for small images, growth rate 32, the usual 32x32 stem. Huang et al. 2017."""

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn
from torchvision.models import densenet121

from trainables.model import Model, Network


@dataclass(frozen=True)
class Densenet121(Model):
    """torchvision's, with a 3x3 stride-1 stem; the first dense block normalises its input."""

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        network = densenet121(weights=None, num_classes=num_classes)
        layers = OrderedDict(network.features.named_children())
        layers["conv0"] = nn.Conv2d(
            input_shape[0], layers["conv0"].out_channels, 3, padding=1, bias=False
        )
        # As in torchvision's DenseNet.
        nn.init.kaiming_normal_(layers["conv0"].weight)
        for name in ("norm0", "relu0", "pool0"):
            del layers[name]
        layers |= {
            "relu5": nn.ReLU(inplace=True),
            "avgpool": nn.AdaptiveAvgPool2d(1),
            "flatten": nn.Flatten(),
        }
        return Network(nn.Sequential(layers), network.classifier)
