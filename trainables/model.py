"""The interface of a network: `features` (images to a vector), then `head` (vector to logits).

One for texts takes the numbers of their words, int32 [N, L]. One for images with masks gives such a
vector for each place, and logits for each pixel.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from trainables.fields import Settings
from trainables.kinds import Kind


class Network(nn.Module):
    """`features`: [N, C, H, W] -> [N, D]; `head`: [N, D] -> logits [N, K].

    Per position: `features` gives [N, D, h, w], `head` logits [N, K, H, W].
    """

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        """Logits [N, K] (or [N, K, H, W]) of normalised images [N, C, H, W]."""
        logits: Tensor = self.head(self.features(images))
        return logits

    def take_vectors(self, vectors: Tensor) -> None:
        """Start from vectors of words [words, D], by number, that the data have; by default not.

        Called before `adapt`. What is taken belongs in the state dict, too.
        """

    def adapt(self, images: Callable[[int], Tensor]) -> None:
        """Set, before training, the weights that are computed from the data; by default none.

        `images(n)` are at most n images of train [n, C, H, W], normalised, not augmented, on the
        CPU, as is the network then. What is set belongs in the state dict: a trained network is
        loaded without images.
        """


class Origin(NamedTuple):
    """The weights that training starts from.

    mean, std: of the images they were trained on, per channel, in pixel units (0 to 255); of a
    frozen network.
    """

    name: str  # in full, as the library has it
    sha256: str  # of the file
    package: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True)
class Model(Settings, ABC):
    """Fields are architecture options; `build` draws the weights from torch's global generator."""

    takes: ClassVar[tuple[Kind, ...]] = ("image",)  # kinds of samples
    per_position: ClassVar[bool] = False  # it gives a class to every pixel, for images with masks

    @property
    def frozen(self) -> bool:
        """Only the head is trained, on the outputs of `backbone`: `build` gets their shape."""
        return False

    @property
    def stackable(self) -> bool:
        """Its networks are made of the layers of `training.stacked.LAYERS`, so that several can
        train as one program."""
        return False

    def origin(self) -> Origin | None:
        """The weights that training starts from, None: random ones. Raises FieldError where they
        cannot be had."""
        return None

    def backbone(self, input_shape: Any) -> nn.Module:
        """Of a frozen model: images, normalised as its origin says, to features [N, D], in
        evaluation mode. Raises FieldError for images it does not support."""
        raise NotImplementedError

    @abstractmethod
    def build(self, input_shape: Any, num_classes: int) -> nn.Module:
        """A network for samples of this shape: (channels, height, width), (columns,), or (length,)
        of texts, with the size of the vocabulary as `input_shape.words`.

        A `Network`, or any module that ends in its last linear layer, which is then the head.
        """
