"""Every name an extension's model may import; a few of them make one."""
# ruff: noqa: F401

from dataclasses import dataclass

from trainables.fields import number
from trainables.model import Model, Network
from trainables.models import find, names
from trainables.models.shared.resnet import (
    PaddedShortcut,
    SmallImageResnet,
    four_stage_resnet,
    three_stage_resnet,
)


@dataclass(frozen=True)
class Listed(Model):
    """A residual network with a block a stage."""

    width: int = number(4, low=1, doc="channels of the first stage")

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        return three_stage_resnet(
            1, self.width, input_shape, num_classes, stem=self.width, projections=False
        )
