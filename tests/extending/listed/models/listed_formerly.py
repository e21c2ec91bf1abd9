"""What a model imported from a module that has moved since, by its former name."""
# ruff: noqa: F401, I001

from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torchvision.models.resnet import BasicBlock

from trainables.resnet import (
    PaddedShortcut,
    SmallImageResnet,
    four_stage_resnet,
    three_stage_resnet,
)


@dataclass(frozen=True)
class ListedFormerly(SmallImageResnet):
    """A block a stage."""

    block: ClassVar[type[nn.Module]] = BasicBlock
    layers: ClassVar[tuple[int, int, int, int]] = (1, 1, 1, 1)
