"""Parts of the residual networks for small images: stems, stages of blocks, pooling."""

from abc import ABC
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torchvision.models.resnet import BasicBlock, ResNet

from trainables.fields import number
from trainables.model import Model, Network

STEM = 16  # channels before the first of three stages


@dataclass(frozen=True)
class SmallImageResnet(Model, ABC):
    """torchvision's four-stage ResNet with a 3x3 stride-1 stem, no max-pool, as for 32x32."""

    block: ClassVar[type[nn.Module]]
    layers: ClassVar[tuple[int, int, int, int]]  # blocks per stage

    pool: int = number(
        1, low=1, doc="side of the pooled feature map: 1 is one average, 2 is four averages"
    )

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        return four_stage_resnet(self.block, self.layers, input_shape, num_classes, self.pool)


def four_stage_resnet(
    block: Any,
    layers: Sequence[int],
    input_shape: tuple[int, int, int],
    num_classes: int,
    pool: int = 1,
) -> Network:
    """torchvision's ResNet with these blocks and layers and the small-image stem."""

    def make() -> Network:
        modules = OrderedDict(ResNet(block, list(layers), num_classes).named_children())
        modules["conv1"] = _convolution(input_shape[0], 64)
        del modules["maxpool"]
        head = modules.pop("fc")
        if pool > 1:
            modules["avgpool"] = nn.AdaptiveAvgPool2d(pool)
            head = nn.Linear(pool**2 * head.in_features, num_classes)
        modules["flatten"] = nn.Flatten()
        return Network(nn.Sequential(modules), head)

    return _drawn(make)


def three_stage_resnet(
    blocks: int,
    width: int,
    input_shape: tuple[int, int, int],
    num_classes: int,
    projections: bool,
) -> Network:
    """Three stages of `blocks` basic blocks: width, 2 and 4 width wide, on full to quarter maps.

    He et al. 2016, Section 4.2. projections: where the width changes, the shortcut is a 1x1
    convolution (their option B), else subsampling with zeros for the new channels (option A, which
    they use).
    """

    def make() -> Network:
        modules: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=_convolution(input_shape[0], STEM),
            bn1=nn.BatchNorm2d(STEM),
            relu=nn.ReLU(inplace=True),
        )
        before = STEM
        for stage in range(3):
            after = width * 2**stage
            made = []
            for index in range(blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                shortcut: nn.Module | None = None
                if before != after and projections:
                    projection = nn.Conv2d(before, after, 1, stride, bias=False)
                    shortcut = nn.Sequential(projection, nn.BatchNorm2d(after))
                elif before != after:
                    shortcut = PaddedShortcut(after - before, stride)
                made.append(BasicBlock(before, after, stride, shortcut))
                before = after
            modules[f"layer{stage + 1}"] = nn.Sequential(*made)
        modules |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
        return Network(nn.Sequential(modules), nn.Linear(before, num_classes))

    return _drawn(make)


class PaddedShortcut(nn.Module):
    """Every `stride`-th pixel, with zeros for the new channels; no weights."""

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.new_channels = new_channels
        self.stride = stride

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C + new_channels, H / stride, W / stride]."""
        first = self.new_channels // 2
        kept = images[:, :, :: self.stride, :: self.stride]
        return F.pad(kept, (0, 0, 0, 0, first, self.new_channels - first))


def _convolution(before: int, after: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, padding=1, bias=False)


class _Undrawn(TorchFunctionMode):
    """In its block, layers leave their weights as they find them in memory."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", None) in ("normal_", "uniform_", "kaiming_uniform_"):
            return None
        return function(*args, **(kwargs or {}))


def _drawn(make: Callable[[], Network]) -> Network:
    """The network, with its weights drawn once, as torchvision draws those of its own."""
    with _Undrawn():
        network = make()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d | nn.Linear):
            module.reset_parameters()
    return network
