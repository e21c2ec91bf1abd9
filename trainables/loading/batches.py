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

    On a GPU the images lie there zero-padded, and a batch is one gather of columns of pixels: cropped by where they
    begin, flipped by the order in which they are taken. Where they would take more than half of the trial's memory,
    with the bytes of the splits `beside` them, they are streamed: `gather` reads those of a batch from the
    memory-mapped file, which `batch` then gets. On a CPU they are that file.
    """

    def __init__(
        self,
        split: Split,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str,
        augment: str = "none",
        padding: int | None = None,
        beside: int = 0,
    ) -> None:
        self.device = torch.device(device)
        self.labels = split.labels  # on the CPU, like the indices of a subset's samples
        self._part: Tensor | None = None
        self._shape, self._augment = split.images.shape[1:], augment
        self._padding = padding_of(augment, padding, self._shape[1])
        self._mean, self._std = (
            torch.tensor(values, dtype=torch.float32, device=self.device)[:, None, None]
            for values in (mean, std)
        )
        self._images = split.images
        self._columns: Tensor | None = (
            None  # of all images, each beginning at another pixel: they overlap
        )
        self.place = place_of(
            beside + padded_bytes(len(split.images), self._shape, self._padding), self.device
        )
        if self.place == "resident":
            padded = (
                F.pad(split.images.to(self.device), (self._padding,) * 4)
                .permute(0, 2, 3, 1)
                .contiguous()
            )
            self._images = padded.permute(0, 3, 1, 2)
            channels, (height, width) = self._shape[0], padded.shape[1:3]
            count = len(padded) * height * width - (self._shape[1] - 1) * width
            self._columns = padded.as_strided(
                (count, self._shape[1], channels), (channels, width * channels, 1)
            )
            self._scale, self._shift = 1 / self._std, -self._mean / self._std
            self._across = torch.arange(self._shape[2], device=self.device)
        self._is_normalised = (
            self.place == "mapped"
            and augment == "none"
            and 4 * self._images.numel() <= NORMALISED_BYTES
        )
        if self._is_normalised:
            self._images = self._normalise(self._images)

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

    def decide(
        self, indices: Tensor, generator: torch.Generator, mirrored: Tensor | None = None
    ) -> dict[str, Tensor]:
        """What `batch` needs for samples at indices [..., B], with the random choices of their augmentation.

        All on the CPU, of the same leading dimensions. mirrored: [rows of the split] bool, for an alternating flip.
        """
        rows = indices if self._part is None else self._part[indices]
        decided = {"indices": indices, "labels": self.labels[indices]}
        drawn = draw_augmentation(indices.shape, self._augment, self._padding, generator)
        if "alternating" in self._augment:
            assert mirrored is not None, (
                "an alternating flip is decided for the whole split: `mirrored_in_turn`"
            )
            drawn["mirrored"] = mirrored[rows]
        if self._columns is None:
            return {**decided, "rows": rows, **drawn}
        unmoved, turned = (
            torch.full((), self._padding),
            drawn.get("mirrored", torch.zeros_like(rows)).long(),
        )
        height, width = self._images.shape[2:]
        first = (rows * height + drawn.get("top", unmoved)) * width + drawn.get("left", unmoved)
        return {
            **decided,
            "first": first + turned * (self._shape[2] - 1),
            "direction": 1 - 2 * turned,
        }

    def batch(self, decided: Mapping[str, Tensor]) -> Batch:
        """The samples [B] that `decide` decided on, with their labels; its tensors are on the device."""
        if self._columns is not None:
            places = torch.addcmul(
                decided["first"][:, None], decided["direction"][:, None], self._across
            )
            columns = self._columns.index_select(0, places.flatten()).view(
                *places.shape, *self._columns.shape[1:]
            )
            pixels = columns.permute(0, 3, 2, 1)
            images = torch.empty(
                pixels.shape, device=self.device, memory_format=torch.channels_last
            )
            torch.addcmul(
                self._shift, pixels, self._scale, out=images
            )  # normalised in one operation
        else:
            images = (
                decided["images"]
                if self.place == "streamed"
                else self._images.index_select(0, decided["rows"])
            )
            if not self._is_normalised:
                images = self._normalise(augmented(images, decided, self._padding))
        return Batch(images, decided["labels"], decided["indices"])

    def gather(self, rows: Tensor) -> Tensor:
        """uint8 [B, C, H, W] on the CPU, where the GPU can fetch them while it works. rows: those of `decide`, [B]."""
        found = torch.empty(
            len(rows), *self._shape, dtype=torch.uint8, pin_memory=self.device.type == "cuda"
        )
        return torch.index_select(self._images, 0, rows, out=found)

    def images(self, start: int, stop: int) -> Tensor:
        """Samples start to stop, in order, without augmentation: [stop - start, C, H, W] float32, normalised."""
        rows = (
            slice(start, stop)
            if self._part is None
            else self._part[start:stop].to(self._images.device)
        )
        images, edge = (
            self._images[rows].to(self.device),
            self._padding if self._columns is not None else 0,
        )
        images = images[:, :, edge : images.shape[2] - edge, edge : images.shape[3] - edge]
        return images if self._is_normalised else self._normalise(images)

    def _normalise(self, images: Tensor) -> Tensor:
        return torch.sub(images, self._mean).div_(self._std)


def place_of(size: int, device: torch.device) -> str:
    """Where images of so many bytes are: `mapped` from their file, `resident` on the device, or `streamed` to it."""
    if device.type == "cpu":
        return "mapped"
    if device.type != "cuda":
        return "resident"
    total = torch.cuda.get_device_properties(device).total_memory
    return (
        "resident"
        if 2 * size <= torch.cuda.get_per_process_memory_fraction() * total
        else "streamed"
    )


def padding_of(augment: str, padding: int | None, height: int) -> int:
    """Zeros on each side of an image before a crop, in pixels."""
    return (padding or max(1, height // 8)) if "crop" in augment else 0


def padded_bytes(count: int, shape: Sequence[int], padding: int) -> int:
    """Of uint8 images of shape [C, H, W], zero-padded on each side."""
    channels, height, width = shape
    return count * channels * (height + 2 * padding) * (width + 2 * padding)


def augment_images(
    images: Tensor, kind: str, generator: torch.Generator, padding: int | None = None
) -> Tensor:
    """Images [N, C, H, W], each cropped or flipped independently. kind: none, flip, crop, crop_flip.

    Crop: torchvision's RandomCrop(H, padding) with zero padding; None: an eighth of the height, 4 at 32.
    Flip: horizontal, with probability 1/2.
    """
    padding = padding or max(1, images.shape[2] // 8)
    drawn = draw_augmentation(images.shape[:1], kind, padding, generator)
    return augmented(
        images, {name: values.to(images.device) for name, values in drawn.items()}, padding
    )


def draw_augmentation(
    shape: Sequence[int], kind: str, padding: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """The random choices of `augment_images` for samples in batches of this shape, by name."""
    drawn, device = {}, generator.device
    if "crop" in kind:
        corners = torch.randint(2 * padding + 1, (2, *shape), generator=generator, device=device)
        drawn["top"], drawn["left"] = corners
    if "flip" in kind and "alternating" not in kind:
        drawn["mirrored"] = torch.randint(
            2, tuple(shape), generator=generator, device=device
        ).bool()
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
    windows = padded.unfold(2, height, 1).unfold(
        3, width, 1
    )  # [N, C, 2p + 1, 2p + 1, H, W], a view
    return windows[torch.arange(len(images), device=images.device), :, top, left]
