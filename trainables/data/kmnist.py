"""Kuzushiji-MNIST: 70,000 cursive Japanese characters, 28x28, grayscale. Clanuwat et al. 2018."""

from dataclasses import dataclass

from torchvision import datasets

from trainables.data.shared.torchvision import MnistData


@dataclass(frozen=True, kw_only=True)
class Kmnist(MnistData):
    """[60000 + 10000, 1, 28, 28]."""

    theirs = datasets.KMNIST
    class_names = theirs.classes
