"""Made-up images with masks, and a network so small that it trains in a second."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trainables.config import TrialConfig
from trainables.dataset import Dataset, RawData, RawSplit
from trainables.loading.cache import Prepared, prepare
from trainables.loading.trial_data import TrialData
from trainables.model import Model, Network

CPU = torch.device("cpu")
CLASSES = ("sky", "road", "tree")


def images_with_masks(count: int, height: int = 14, width: int = 18, seed: int = 0) -> np.ndarray:
    """uint8 [N, 4, height, width]: noise; its mask follows the red channel, with holes.

    The first image has no labelled pixel; the last class is only in each third image.
    """
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, 3, height, width), dtype=np.uint8)
    mask = 1 + (images[:, 0] > 127).astype(np.uint8)
    mask[::3][images[::3, 1] > 200] = 3
    mask[random.random(mask.shape) < 0.2] = 0
    mask[0] = 0
    return np.concatenate([images, mask[:, None]], axis=1)


@dataclass(frozen=True)
class Masks(Dataset):
    """Train alone: validation and test are carved from it."""

    count: int = 40
    height: int = 14
    width: int = 18
    drives: int = 0  # groups of images; 0: none

    def source_digest(self) -> str:
        return hashlib.sha256(f"{self}".encode()).hexdigest()

    def read(self) -> RawData:
        images = images_with_masks(self.count, self.height, self.width)
        groups = None if not self.drives else np.arange(self.count) % self.drives
        split = RawSplit(images, np.zeros(self.count, dtype=np.int64), groups)
        return RawData(CLASSES, split, marked=True)

    @property
    def unit(self) -> str | None:
        return "drives" if self.drives else None


@dataclass(frozen=True)
class Tiny(Model):
    """A convolution to `width` channels, and to logits."""

    width: int = 6

    per_position = True

    def build(self, input_shape: Any, num_classes: int) -> Network:
        features = nn.Sequential(
            nn.Conv2d(input_shape[0], self.width, 3, padding=1),
            nn.BatchNorm2d(self.width),
            nn.ReLU(),
        )
        return Network(features, nn.Conv2d(self.width, num_classes, 1))


def prepared_masks(cache: Path, **options: Any) -> Prepared:
    return prepare(Masks(**options), 0, cache)


def masks_and_config(cache: Path, **settings: Any) -> tuple[TrialConfig, TrialData]:
    """A trial of `Tiny` on `Masks`, and its data."""
    plain = {"data": "digits", "model": "mlp", "method": "cross_entropy", "epochs": 3}
    plain |= {"batch_size": 6, "optimizer": {"name": "adam", "lr": 0.01}, **settings}
    data = Masks(augment="crop_flip")
    config = replace(TrialConfig.from_mapping(plain), data=data, model=Tiny())
    return config, TrialData(prepare(data, 0, cache), CPU, data.augment, data.padding)
