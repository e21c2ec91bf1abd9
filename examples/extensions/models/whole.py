"""A network of your own that is one module: its last linear layer is found. An example."""

from dataclasses import dataclass

from torch import Tensor, nn

from trainables import Model, number


class Net(nn.Module):
    """As you have it: images in, logits out."""

    def __init__(self, channels: int, width: int, num_classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(16 * width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.drop(self.body(images).flatten(1)))
        return logits


@dataclass(frozen=True)
class Whole(Model):
    width: int = number(8, low=1, doc="channels of the convolution")

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
        return Net(input_shape[0], self.width, num_classes)
