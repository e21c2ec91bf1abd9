"""One split on a device: batches by index, augmented and normalised there."""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.loading.cache import Split
from trainables.method import Batch

# Up to this size, splits without augmentation are kept as float32, and a batch is one index_select.
NORMALISED_BYTES = 512 * 2**20


class DeviceSplit:
    """Images and labels of one split on a device. mean, std: per channel, in pixel units.

    On a GPU the images lie there as rows of pixels, zero-padded once: a batch is one gather of pixels, cropped and
    flipped by which are taken. On a CPU they are the memory-mapped file.
    """

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
        self.labels = split.labels  # on the CPU, like the indices of a subset's samples
        self._part: Tensor | None = None
        self._shape, self._augment = split.images.shape[1:], augment
        self._padding = (padding or max(1, self._shape[1] // 8)) if "crop" in augment else 0
        self._mean, self._std = (
            torch.tensor(values, dtype=torch.float32, device=self.device)[:, None, None] for values in (mean, std)
        )
        self._images = split.images
        self._pixels: Tensor | None = None
        if is_resident(self.device):
            padded = F.pad(split.images.to(self.device), (self._padding,) * 4).permute(0, 2, 3, 1)
            self._pixels = padded.reshape(-1, self._shape[0])
            self._images = self._pixels.view(padded.shape).permute(0, 3, 1, 2)
            self._patterns = self._window(padded.shape[2]).to(self.device)
        self._is_normalised = (
            self._pixels is None and augment == "none" and 4 * self._images.numel() <= NORMALISED_BYTES
        )
        if self._is_normalised:
            self._images = self._normalise(self._images)

    def _window(self, width: int) -> Tensor:
        """[2, H * W]: where a crop's pixels lie after its first, in rows of `width`; then its mirror image's."""
        _, rows, columns = self._shape
        window = torch.arange(rows)[:, None] * width + torch.arange(columns)
        return torch.stack([window, window.flip(1)]).flatten(1)

    def subset(self, rows: Tensor, augment: str) -> "DeviceSplit":
        """A subset by index [M]; images are shared, not copied."""
        part = copy.copy(self)
        part._part, part.labels, part._augment = self.rows[rows], self.labels[rows], augment
        return part

    @property
    def rows(self) -> Tensor:
        """[N]: the samples' indices in the split."""
        return torch.arange(len(self.labels)) if self._part is None else self._part

    def __len__(self) -> int:
        return len(self.labels)

    def decide(self, indices: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> dict[str, Tensor]:
        """What `batch` needs for samples at indices [..., B], with the random choices of their augmentation.

        All on the CPU, of the same leading dimensions. mirrored: [rows of the split] bool, for an alternating flip.
        """
        rows = indices if self._part is None else self._part[indices]
        decided = {"indices": indices, "labels": self.labels[indices]}
        drawn = draw_augmentation(indices.shape, self._augment, self._padding, generator)
        if "alternating" in self._augment:
            assert mirrored is not None, "an alternating flip is decided for the whole split: `mirrored_in_turn`"
            drawn["mirrored"] = mirrored[rows]
        if self._pixels is None:
            return {**decided, "rows": rows, **drawn}
        unmoved = torch.full((), self._padding)
        height, width = self._images.shape[2:]
        corner = (rows * height + drawn.get("top", unmoved)) * width + drawn.get("left", unmoved)
        return {**decided, "corner": corner, "mirrored": drawn.get("mirrored", torch.zeros_like(rows)).long()}

    def batch(self, decided: Mapping[str, Tensor]) -> Batch:
        """The samples [B] that `decide` decided on, with their labels; its tensors are on the device."""
        if self._pixels is not None:
            places = decided["corner"][:, None] + self._patterns.index_select(0, decided["mirrored"])
            channels, height, width = self._shape
            pixels = self._pixels.index_select(0, places.flatten()).view(-1, height, width, channels)
            images = self._normalise(pixels.permute(0, 3, 1, 2))
        else:
            images = self._images.index_select(0, decided["rows"])
            if not self._is_normalised:
                images = self._normalise(augmented(images, decided, self._padding))
        return Batch(images, decided["labels"], decided["indices"])

    def images(self, start: int, stop: int) -> Tensor:
        """Samples start to stop, in order, without augmentation: [stop - start, C, H, W] float32, normalised."""
        rows = slice(start, stop) if self._part is None else self._part[start:stop].to(self.device)
        images, edge = self._images[rows], self._padding if self._pixels is not None else 0
        images = images[:, :, edge : images.shape[2] - edge, edge : images.shape[3] - edge]
        return images if self._is_normalised else self._normalise(images)

    def _normalise(self, images: Tensor) -> Tensor:
        return torch.sub(images, self._mean).div_(self._std)


def is_resident(device: torch.device) -> bool:
    """Whether a split's images are copied to the device once."""
    return device.type != "cpu"


def augment_images(images: Tensor, kind: str, generator: torch.Generator, padding: int | None = None) -> Tensor:
    """Images [N, C, H, W], each cropped or flipped independently. kind: none, flip, crop, crop_flip.

    Crop: torchvision's RandomCrop(H, padding) with zero padding; None: an eighth of the height, 4 at 32.
    Flip: horizontal, with probability 1/2.
    """
    padding = padding or max(1, images.shape[2] // 8)
    drawn = draw_augmentation(images.shape[:1], kind, padding, generator)
    return augmented(images, {name: values.to(images.device) for name, values in drawn.items()}, padding)


def draw_augmentation(shape: Sequence[int], kind: str, padding: int, generator: torch.Generator) -> dict[str, Tensor]:
    """The random choices of `augment_images` for samples in batches of this shape, by name."""
    drawn, device = {}, generator.device
    if "crop" in kind:
        corners = torch.randint(2 * padding + 1, (2, *shape), generator=generator, device=device)
        drawn["top"], drawn["left"] = corners
    if "flip" in kind and "alternating" not in kind:
        drawn["mirrored"] = torch.randint(2, tuple(shape), generator=generator, device=device).bool()
    return drawn


def mirrored_in_turn(samples: int, generator: torch.Generator, epoch: int) -> Tensor:
    """[samples] bool: which are mirrored in an epoch, from 0. At random in the first, then by turns: no two epochs in a
    row show the same side of an image. Jordan 2024, Section 3.6. generator: the same in every epoch.
    """
    return torch.randint(2, (samples,), generator=generator).bool() ^ bool(epoch % 2)


def augmented(images: Tensor, drawn: Mapping[str, Tensor], padding: int) -> Tensor:
    """Images [N, C, H, W] cropped and flipped as drawn for N samples."""
    if "top" in drawn:
        images = crop_images(images, drawn["top"], drawn["left"], padding)
    if "mirrored" in drawn:
        images = torch.where(drawn["mirrored"][:, None, None, None], images.flip(3), images)
    return images


def crop_images(images: Tensor, top: Tensor, left: Tensor, padding: int) -> Tensor:
    """Crops of the original size from the zero-padded images, image i's at (top[i], left[i]).

    images: [N, C, H, W]. top, left: [N] int64 in [0, 2 * padding].
    """
    height, width = images.shape[2:]
    padded = F.pad(images, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # [N, C, 2p + 1, 2p + 1, H, W], a view
    return windows[torch.arange(len(images), device=images.device), :, top, left]
