"""Global-pooling CNN for texts: three convolutions over words, then the maximum of the text."""

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor, nn

from trainables.fields import number
from trainables.inputs import Inputs
from trainables.model import Network
from trainables.models.shared.word_vectors import ModelOfWords, NetworkOfWords, WordVectors
from trainables.problems import FieldError

WINDOW = 5  # words of a convolution, and places of a maximum
SHORTEST = 5 * (WINDOW - 1) + 1  # text that leaves a place at the end


class AlongText(nn.Module):
    """Numbers of words [N, L] -> their vectors, as channels along the text, [N, D, L]."""

    def __init__(self, vectors: WordVectors) -> None:
        super().__init__()
        self.vectors = vectors

    def forward(self, numbers: Tensor) -> Tensor:
        return self.vectors(numbers).transpose(1, 2)


@dataclass(frozen=True)
class GlobalPoolingCnn(ModelOfWords):
    """As in the code released with Mukhoti et al. 2020: convolutions of width 5, and between them
    maxima of 5 places, both without padding and with stride 1; after the maximum over the text a
    layer, ReLU and dropout. Places that pad a text count in its maximum, as they do there.
    """

    channels: int = number(128, low=1, doc="of each convolution, and units of the layer")
    dropout: float = number(0.3, low=0, below=1, doc="share of the layer's units that is left out")

    def build(self, input_shape: Inputs, num_classes: int) -> Network:
        """Raises FieldError for texts that are too short."""
        if input_shape[0] < SHORTEST:
            found = f"global_pooling_cnn takes texts of at least {SHORTEST} words"
            raise FieldError("", f"{found}, got {input_shape[0]}", "Raise data.length.")
        modules: OrderedDict[str, nn.Module] = OrderedDict(
            words=AlongText(self.vectors(input_shape))
        )
        for place, before in enumerate((self.width, self.channels, self.channels), start=1):
            modules[f"convolution{place}"] = nn.Conv1d(before, self.channels, WINDOW)
            modules[f"relu{place}"] = nn.ReLU()
            if place < 3:
                modules[f"maxpool{place}"] = nn.MaxPool1d(WINDOW, stride=1)
        modules |= {
            "maximum": nn.AdaptiveMaxPool1d(1),
            "flatten": nn.Flatten(),
            "layer": nn.Linear(self.channels, self.channels),
            "relu": nn.ReLU(),
            "dropout": nn.Dropout(self.dropout),
        }
        return NetworkOfWords(nn.Sequential(modules), nn.Linear(self.channels, num_classes))
