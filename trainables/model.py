"""The interface of a network: `features` (images to a vector), then `head` (vector to logits)."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from trainables.fields import Settings
from trainables.kinds import Kind


class Network(nn.Module):
    """`features`: [N, C, H, W] -> [N, D]; `head`: [N, D] -> logits [N, K]."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        """Logits [N, K] of normalised images [N, C, H, W]."""
        logits: Tensor = self.head(self.features(images))
        return logits

    def adapt(self, images: Callable[[int], Tensor]) -> None:
        """Set, before training, the weights that are computed from the data; by default none.

        `images(n)` are at most n images of train [n, C, H, W], normalised, not augmented, on the
        CPU, as is the network then. What is set belongs in the state dict: a trained network is
        loaded without images.
        """


@dataclass(frozen=True)
class Model(Settings, ABC):
    """Fields are architecture options; `build` draws the weights from torch's global generator."""

    takes: ClassVar[tuple[Kind, ...]] = ("image",)  # kinds of samples

    @abstractmethod
    def build(self, input_shape: Any, num_classes: int) -> Network:
        """A network for samples of this shape: (channels, height, width), or (columns,)."""
