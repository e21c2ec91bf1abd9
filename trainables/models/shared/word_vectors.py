"""Vectors of words, trained or as they are given; shared by networks of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.fields import number, setting
from trainables.inputs import Inputs
from trainables.kinds import Kind
from trainables.model import Model, Network
from trainables.problems import FieldError


class WordVectors(nn.Module):
    """Numbers of words [N, L] -> their vectors [N, L, D]; 0 has the vector 0, and keeps it."""

    weight: Tensor

    def __init__(self, words: int, width: int, trained: bool) -> None:
        super().__init__()
        drawn = torch.randn(words, width)
        drawn[0] = 0.0
        if trained:
            self.weight = nn.Parameter(drawn)
        else:
            self.register_buffer("weight", drawn)

    def forward(self, numbers: Tensor) -> Tensor:
        return F.embedding(numbers, self.weight, padding_idx=0)


class NetworkOfWords(Network):
    """Its features have WordVectors."""

    def take_vectors(self, vectors: Tensor) -> None:
        of_words = next(each for each in self.modules() if isinstance(each, WordVectors))
        with torch.no_grad():
            of_words.weight.copy_(vectors)


@dataclass(frozen=True)
class ModelOfWords(Model):
    """Fields of every network of texts."""

    takes: ClassVar[tuple[Kind, ...]] = ("words",)

    width: int = number(100, low=1, doc="numbers of a word's vector")
    train_vectors: bool = setting(
        True, doc="train the vectors of words; false: they stay those of the data's `vectors`"
    )

    def vectors(self, inputs: Inputs) -> WordVectors:
        """Raises FieldError where the vectors of the data are missing, or of another width."""
        if inputs.vectors and inputs.vectors != self.width:
            found = f"{self.width} is not the width of the data's vectors"
            raise FieldError("width", found, f"Write width: {inputs.vectors}.")
        if not self.train_vectors and not inputs.vectors:
            found = "false needs vectors of words, the data have none"
            raise FieldError("train_vectors", found, "Name their file, as data.vectors.")
        return WordVectors(inputs.words, self.width, self.train_vectors)
