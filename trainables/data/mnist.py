"""MNIST: 70,000 handwritten digits, 28x28, grayscale. LeCun et al. 1998."""

from dataclasses import dataclass

from torchvision import datasets

from trainables.data.shared.torchvision import MnistData


@dataclass(frozen=True, kw_only=True)
class Mnist(MnistData):
    """[60000 + 10000, 1, 28, 28]."""

    theirs = datasets.MNIST
    class_names = theirs.classes
