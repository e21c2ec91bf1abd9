"""CIFAR-100: 60,000 colour images, 32x32, 100 classes. Krizhevsky 2009."""

from dataclasses import dataclass

from torchvision import datasets

from trainables.data.shared.torchvision import CifarData


@dataclass(frozen=True, kw_only=True)
class Cifar100(CifarData):
    """[50000 + 10000, 3, 32, 32]; fine labels."""

    theirs = datasets.CIFAR100
