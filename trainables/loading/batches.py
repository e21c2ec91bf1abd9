"""One split on a device: batches by index, augmented and normalised there."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.loading.cache import Split
from trainables.method import Batch

# Up to this size, splits without augmentation are kept as float32, and a batch is one index_select.
NORMALISED_BYTES = 512 * 2**20


class DeviceSplit:
    """Images and labels of one split on a device. mean, std: per channel, in pixel units."""

    def __init__(
        self,
        split: Split,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str,
        augment: str = "none",
        padding: int | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.labels = split.labels.to(self.device)
        self._part: Tensor | None = None  # for a subset, the samples' indices in the split
        self._augment, self._padding = augment, padding
        self._mean, self._std = (
            torch.tensor(values, dtype=torch.float32, device=self.device)[:, None, None] for values in (mean, std)
        )
        # On the CPU this is the memory-mapped file, not a copy.
        self._images = split.images.to(self.device)
        self._is_normalised = augment == "none" and 4 * split.images.numel() <= NORMALISED_BYTES
        if self._is_normalised:
            self._images = self._normalise(self._images)

    def subset(self, rows: Tensor, augment: str) -> "DeviceSplit":
        """A subset by index [M]; images are shared, not copied."""
        part = copy.copy(self)
        part._part = self.rows[rows.to(self.device)]
        part.labels, part._augment = self.labels[rows.to(self.device)], augment
        return part

    @property
    def rows(self) -> Tensor:
        """[N]: the samples' indices in the split."""
        return torch.arange(len(self.labels), device=self.device) if self._part is None else self._part

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, generator: torch.Generator) -> Batch:
        """Samples at indices [B] (on any device) with their labels, augmented if the split is."""
        indices = indices.to(self.device)
        images = self._images.index_select(0, indices if self._part is None else self._part[indices])
        if not self._is_normalised:
            images = self._normalise(augment_images(images, self._augment, generator, self._padding))
        return Batch(images, self.labels.index_select(0, indices), indices)

    def images(self, start: int, stop: int) -> Tensor:
        """Samples start to stop, in order, without augmentation: [stop - start, C, H, W] float32, normalised."""
        images = self._images[start:stop] if self._part is None else self._images[self._part[start:stop]]
        return images if self._is_normalised else self._normalise(images)

    def _normalise(self, images: Tensor) -> Tensor:
        return images.to(torch.float32).sub_(self._mean).div_(self._std)


def augment_images(images: Tensor, kind: str, generator: torch.Generator, padding: int | None = None) -> Tensor:
    """Images [N, C, H, W], each cropped or flipped independently. kind: none, flip, crop, crop_flip.

    Crop: torchvision's RandomCrop(H, padding) with zero padding; None: an eighth of the height, 4 at 32.
    Flip: horizontal, with probability 1/2.
    """
    n, height = len(images), images.shape[2]
    if "crop" in kind:
        padding = padding or max(1, height // 8)
        corners = torch.randint(2 * padding + 1, (2, n), generator=generator, device=generator.device)
        top, left = corners.to(images.device)
        images = crop_images(images, top, left, padding)
    if "flip" in kind:
        mirrored = torch.randint(2, (n, 1, 1, 1), generator=generator, device=generator.device).bool()
        images = torch.where(mirrored.to(images.device), images.flip(3), images)
    return images


def crop_images(images: Tensor, top: Tensor, left: Tensor, padding: int) -> Tensor:
    """Crops of the original size from the zero-padded images, image i's at (top[i], left[i]).

    images: [N, C, H, W]. top, left: [N] int64 in [0, 2 * padding].
    """
    height, width = images.shape[2:]
    padded = F.pad(images, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # [N, C, 2p + 1, 2p + 1, H, W], a view
    return windows[torch.arange(len(images), device=images.device), :, top, left]
