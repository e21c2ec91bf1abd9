"""Fashion-MNIST: 70,000 grayscale images of clothing, 28x28, ten classes. Xiao et al. 2017."""

from dataclasses import dataclass

from torchvision import datasets

from trainables.data.shared.torchvision import MnistData


@dataclass(frozen=True, kw_only=True)
class FashionMnist(MnistData):
    """[60000 + 10000, 1, 28, 28]."""

    theirs = datasets.FashionMNIST
    class_names = theirs.classes
