"""The network of airbench94: a whitening stem, six convolutions. Jordan 2024, Section 3."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.fields import number
from trainables.model import Model, Network
from trainables.problems import FieldError

PATCH = 2  # side of the patches that are whitened
IMAGES = 5000  # that the whitening is computed from, as in the released code
EPSILON = 5e-4  # added to the variances that it divides by
FORGETTING = 0.4  # of batch norm's running averages, per batch; PyTorch calls it momentum


@dataclass(frozen=True)
class Airbench(Model):
    """A whitening stem, then blocks with width, 4 width and 4 width channels, and a maximum.

    A block is a 3x3 convolution, max pooling, batch norm, GELU, a convolution, batch norm, GELU.
    Convolutions start as the identity as far as they can; batch norm has no scale, and the head no
    bias. At 32x32 it is the network of the paper, except that

    - the logits are multiplied by `logit_scale`, 1 by default: the paper has 1/9. A head whose
      logits are not learns 81 times as fast at the same rate, and the published rate is too high;
    - the stem's bias is trained to the end, not for three epochs: freezing it saves time, and would
      change within a training what is trained.

    Label smoothing, test-time augmentation and look-ahead averaging are no part of a network, and
    not of ours. At other sizes, a map of one pixel is not pooled, and the last pooling takes the
    whole map, 3x3 at 32x32.
    """

    width: int = number(64, low=1, doc="channels of the first block")
    logit_scale: float = number(
        1.0, above=0, doc="the logits are multiplied by it; the paper has 1/9"
    )

    def build(self, input_shape: tuple[int, int, int], num_classes: int) -> Network:
        """Raises FieldError for images smaller than a patch."""
        channels, *sides = input_shape
        if min(sides) < PATCH:
            shape = "x".join(map(str, input_shape))
            least = f"airbench takes images of at least {PATCH}x{PATCH} pixels"
            raise FieldError("", f"{least}, got {shape}")
        modules: OrderedDict[str, nn.Module] = OrderedDict(
            whitening=Whitening(channels), gelu=nn.GELU()
        )
        before = 2 * channels * PATCH**2
        sides = [side - PATCH + 1 for side in sides]
        for block, factor in enumerate((1, 4, 4), start=1):
            pool = [min(2, side) for side in sides]
            after = factor * self.width
            modules[f"block{block}"] = nn.Sequential(
                *(_convolution(before, after), nn.MaxPool2d(tuple(pool)), _norm(after), nn.GELU()),
                *(_convolution(after, after), _norm(after), nn.GELU()),
            )
            before = after
            sides = [side // least for side, least in zip(sides, pool, strict=True)]
        modules |= {"maxpool": nn.MaxPool2d(tuple(sides)), "flatten": nn.Flatten()}
        head = ScaledLinear(before, num_classes, self.logit_scale)
        return AirbenchNetwork(nn.Sequential(modules), head)


class ScaledLinear(nn.Linear):
    """A linear layer without a bias, whose outputs are multiplied by a constant."""

    def __init__(self, inputs: int, outputs: int, scale: float) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        logits = super().forward(features)
        return logits if self.scale == 1 else logits * self.scale


class Whitening(nn.Module):
    """A 2x2 convolution to the patches' principal directions, of variance 1, and their negatives.

    Its weights are a buffer, never trained: random until `adapt`, and in every state dict. Its bias
    is trained.
    """

    weight: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        patch = channels * PATCH**2
        self.register_buffer("weight", torch.randn(2 * patch, channels, PATCH, PATCH) / patch**0.5)
        self.bias = nn.Parameter(torch.zeros(2 * patch))

    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(images, self.weight, self.bias)


class AirbenchNetwork(Network):
    def adapt(self, images: Callable[[int], Tensor]) -> None:
        stem = self.features.get_submodule("whitening")
        assert isinstance(stem, Whitening)
        stem.weight.copy_(whitening_filters(images(IMAGES)))


def whitening_filters(images: Tensor) -> Tensor:
    """[2 P, C, 2, 2] of images [N, C, H, W], P = 4 C: whitening directions, then their negatives.

    These are eigenvectors of the patches' second moments over the square root of the eigenvalues,
    largest first. In float64, and with the largest weight of each of the first P positive: which
    sign an eigenvector has is else up to the library.
    """
    channels = images.shape[1]
    size = channels * PATCH**2
    moments = torch.zeros(size, size, dtype=torch.float64)
    count = 0
    for part in torch.split(images, 500):
        patches = F.unfold(part, PATCH).transpose(1, 2).reshape(-1, size).double()
        moments = moments + patches.T @ patches
        count += len(patches)
    values, vectors = torch.linalg.eigh(moments / count)
    filters = (vectors / (values.clamp(min=0) + EPSILON).sqrt()).T.flip(0)
    largest = filters.gather(1, filters.abs().argmax(1, keepdim=True))
    filters = (filters * largest.sign()).view(size, channels, PATCH, PATCH)
    return torch.cat([filters, -filters]).float()


def _convolution(before: int, after: int) -> nn.Conv2d:
    """A convolution whose first filters are the identity, one for each input channel."""
    convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(convolution.weight[:before])
    return convolution


def _norm(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, eps=1e-12, momentum=FORGETTING)
    del norm.weight
    norm.register_buffer("weight", torch.ones(channels), persistent=False)
    return norm
