"""A trial's trained model: normalisation, network and temperature, to probabilities."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import BinaryIO, cast

import torch
from torch import Tensor, nn

from trainables.files.atomic import write_stream
from trainables.files.saved import check_saved
from trainables.inputs import WORDED, across
from trainables.kinds import Kind
from trainables.model import Network
from trainables.positions import Positions

# Samples per forward pass in prediction: enough to fill a GPU, small enough for any.
PREDICTION_BATCH = 1024
# And pixels of a forward pass that gives a class to each: a U-Net has a hundred numbers for each.
PREDICTION_PIXELS = 2**19
# And words: a convolution over them has a hundred numbers for each, too.
PREDICTION_WORDS = 2**17


class Classifier(nn.Module):
    """Maps raw samples to probabilities, in evaluation mode, float32, on the CPU.

    A sample is an image's pixels, in 0..255, or a row of numbers, as its data set gives them, or
    int32 numbers of words, which are not normalised. A network on the CPU is taken over, not
    copied. mean, std: per channel, or per column. calibrator: takes the temperature's place.
    """

    mean: Tensor
    std: Tensor
    temperature: Tensor

    def __init__(
        self,
        network: Network,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        temperature: float = 1.0,
        kind: Kind = "image",
    ) -> None:
        super().__init__()
        on_cpu = all(each.device.type == "cpu" for each in network.parameters())
        if not on_cpu:
            network = copy.deepcopy(network)
        self.network = network.float().cpu()
        self.register_buffer("mean", across(mean, kind))
        self.register_buffer("std", across(std, kind))
        self._is_worded = kind in WORDED
        self.calibrator: nn.Module | None = None
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float32))
        self.eval()

    def logits(self, images: Tensor) -> Tensor:
        """images: [N, C, H, W], [N, D] or [N, L] -> logits [N, K], before the temperature; per
        position [N, K, H, W]."""
        samples = images if self._is_worded else (images.float() - self.mean) / self.std
        logits: Tensor = self.network(samples)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """images: [N, C, H, W] or [N, D] -> probabilities [N, K]; per position [N, K, H, W]."""
        return self.probs(self.logits(images))

    def probs(self, logits: Tensor) -> Tensor:
        """The probabilities of logits [N, K], float32; per position [N, K, H, W]."""
        if self.calibrator is not None:
            calibrated: Tensor = self.calibrator(logits)
            return calibrated.softmax(dim=1).float()
        return (logits / self.temperature).softmax(dim=1)

    def save(self, path: Path) -> str:
        """Write the weights to `path` atomically; returns the file's sha256."""
        state = self.state_dict()
        return write_stream(path, lambda file: torch.save(state, cast(BinaryIO, file)))

    def load(self, path: Path) -> Classifier:
        """Load what `save` wrote. Raises FieldError for anything else, and torch's errors."""
        check_saved(path)
        self.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
        return self


def batches(images: Tensor, per_position: bool = False) -> Iterator[Tensor]:
    """The samples [N, ...] in batches for prediction."""
    size = batch_size(images.shape[1:], per_position, images.dtype == torch.int32)
    for start in range(0, len(images), size):
        yield images[start : start + size]


def batch_size(shape: tuple[int, ...], per_position: bool, worded: bool = False) -> int:
    """The samples of a forward pass in prediction. per_position: of each pixel. worded: of texts,
    whose numbers are words."""
    if worded:
        return min(PREDICTION_BATCH, max(1, PREDICTION_WORDS // shape[0]))
    if not per_position:
        return PREDICTION_BATCH
    return min(PREDICTION_BATCH, max(1, PREDICTION_PIXELS // prod(shape[1:])))


def predicted(
    call: Callable[[Tensor], Tensor], images: Tensor, positions: Positions | None = None
) -> Tensor:
    """What a call gives of samples [N, ...], in batches: [N, K] float32 on the CPU. positions: of
    images with masks, the rows [R, K] of what it gives of each pixel."""
    found: list[Tensor] = []
    start = 0
    for batch in batches(images, positions is not None):
        values = call(batch)
        if positions is not None:
            values = positions.at(values, start)
        found.append(values.float().cpu())
        start += len(batch)
    return torch.cat(found)
