"""The rows of predictions of images with masks: some labelled pixels of each image."""

from typing import NamedTuple

import torch
from torch import Tensor


class Positions(NamedTuple):
    """Where R rows are, sorted by image. images: [R] int64, into a split. places: [R] int64, row *
    width + column."""

    images: Tensor
    places: Tensor

    def at(self, values: Tensor, start: int = 0) -> Tensor:
        """The rows of the images from `start` on. values: [n, K, H, W] of n images -> [R', K]."""
        bounds = torch.tensor([start, start + len(values)])
        first, last = torch.searchsorted(self.images, bounds).tolist()
        images = (self.images[first:last] - start).to(values.device)
        places = self.places[first:last].to(values.device)
        return values.flatten(2)[images, :, places]

    def of(self, images: Tensor) -> Tensor:
        """[R] bool: the rows of these images."""
        return torch.isin(self.images, images)
