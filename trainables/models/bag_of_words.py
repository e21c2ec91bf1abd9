"""Bag of words: the mean of a text's word vectors, then one linear layer."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from trainables.fields import number
from trainables.inputs import Inputs
from trainables.kinds import Kind
from trainables.model import Network
from trainables.models.shared.word_vectors import ModelOfWords, NetworkOfWords, WordVectors


class MeanOfWords(nn.Module):
    """Numbers of words [N, L] -> the mean of the vectors of those that are there, [N, D]. Of trees
    [N, M, 4], whose first numbers are the words of their leaves."""

    def __init__(self, vectors: WordVectors) -> None:
        super().__init__()
        self.vectors = vectors

    def forward(self, numbers: Tensor) -> Tensor:
        if numbers.dim() == 3:
            numbers = numbers[:, :, 0]
        words = (numbers > 0).sum(dim=1, keepdim=True).clamp(min=1)
        return self.vectors(numbers).sum(dim=1) / words


@dataclass(frozen=True)
class BagOfWords(ModelOfWords):
    """The order of words does not matter; a word outside the vocabulary counts as one. Of trees it
    learns the labels of their roots alone."""

    takes: ClassVar[tuple[Kind, ...]] = ("words", "trees")

    dropout: float = number(0.0, low=0, below=1, doc="share of the mean that is left out")

    def build(self, input_shape: Inputs, num_classes: int) -> Network:
        mean = MeanOfWords(self.vectors(input_shape))
        features = OrderedDict(mean=mean, dropout=nn.Dropout(self.dropout))
        return NetworkOfWords(nn.Sequential(features), nn.Linear(self.width, num_classes))
