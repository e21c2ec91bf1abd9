"""One split on a device: batches by index, augmented and normalised there."""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.inputs import Inputs, across
from trainables.loading.cache import Split
from trainables.method import Batch
from trainables.positions import Positions

# Up to this size, splits without augmentation are kept as float32, and a batch is one index_select.
NORMALISED_BYTES = 512 * 2**20


class DeviceSplit:
    """Samples and labels of one split on a device. mean, std: per channel, in pixel units, or per
    column.

    On a GPU images lie there zero-padded, and a batch is one gather of columns of pixels:
    cropped by where they begin, flipped by the order in which they are taken. Rows of numbers lie
    there normalised, texts as they are. Where samples would take more than half of the trial's
    memory, with the bytes of the splits `beside` them, they are streamed: `gather` reads those of a
    batch from the memory-mapped file, which `batch` then gets. On a CPU they are that file. A mask
    moves with its image, as one more channel, and becomes the targets: [B, H, W], -1 where there is
    no label. So do the labels of a tree's nodes, [B, M], but for a network that is not
    `per_position`: its targets are the roots' labels.
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
        per_position: bool = True,
    ) -> None:
        self.device = torch.device(device)
        self._per_position = per_position
        self.labels = split.labels  # on the CPU, like the indices of a subset's samples
        self.groups = split.groups  # the same
        self.positions = split.positions  # of labels and groups, of images with masks
        images = split.images if split.marked is None else split.marked
        self._part: Tensor | None = None
        self._inputs = Inputs.of_samples(images, split.marked is not None)
        if self._inputs.marked:  # then its channel becomes the class
            mean, std = (*mean, 1.0), (*std, 1.0)
        self._augment = augment
        self._padding = padding_of(augment, padding, self._inputs)
        self._mean = across(mean, self._inputs.kind, self.device)
        self._std = across(std, self._inputs.kind, self.device)
        self._images = images
        # The columns of all images, each beginning at another pixel: they overlap.
        self._columns: Tensor | None = None
        size = padded_bytes(len(images), self._inputs, self._padding)
        self.place = place_of(beside + size, self.device)
        if self.place == "resident":
            self._images = images.to(self.device)
            if self._inputs.kind == "image":
                self._lay_out()
        is_standard = self._inputs.kind != "image" and set(mean) == {0.0} and set(std) == {1.0}
        self._is_normalised = is_standard or self._is_kept_normalised()
        if self._is_normalised and not is_standard:
            self._images = self._normalise(self._images)

    def _lay_out(self) -> None:
        """Lay images out on the device as padded columns of pixels."""
        height = self._inputs[1]
        padded = F.pad(self._images, (self._padding,) * 4)
        padded = padded.permute(0, 2, 3, 1).contiguous()
        self._images = padded.permute(0, 3, 1, 2)
        rows, width, channels = padded.shape[1:]
        count = len(padded) * rows * width - (height - 1) * width
        self._columns = padded.as_strided(
            (count, height, channels), (channels, width * channels, 1)
        )
        self._scale = 1 / self._std
        self._shift = -self._mean / self._std
        self._across = torch.arange(self._inputs[2], device=self.device)

    def _is_kept_normalised(self) -> bool:
        """Whether the split is normalised once, beforehand."""
        if self.place == "resident":
            return self._inputs.kind == "features"
        # Beside a network that gives a class to each pixel, that takes no time.
        fits = 4 * self._images.numel() <= NORMALISED_BYTES and not self._inputs.marked
        return self.place == "mapped" and self._augment == "none" and fits

    def subset(self, rows: Tensor, augment: str) -> "DeviceSplit":
        """A subset by index [M]; images are shared, not copied."""
        part = copy.copy(self)
        part._part = self.rows[rows]
        part._augment = augment
        if self.positions is not None:  # of the sorted rows of a whole split
            rows = self.positions.of(rows).nonzero().squeeze(-1)
            images = torch.searchsorted(part._part, self.positions.images[rows])
            part.positions = Positions(images, self.positions.places[rows])
        part.labels = self.labels[rows]
        part.groups = None if self.groups is None else self.groups[rows]
        return part

    @property
    def rows(self) -> Tensor:
        """[N]: the samples' indices in the split."""
        if self._part is None:
            return torch.arange(len(self._images))
        return self._part

    def class_counts(self, num_classes: int) -> Tensor:
        """[K]: how often each class is a label; with masks, at the places of predictions."""
        labels = self.labels
        if self._inputs.kind == "trees" and self._per_position:
            nodes = self._images.cpu()[self.rows][..., -1].long().flatten() - 1
            labels = nodes[nodes >= 0]
        return torch.bincount(labels, minlength=num_classes)

    def __len__(self) -> int:
        return len(self._images if self._part is None else self._part)

    def decide(
        self, indices: Tensor, generator: torch.Generator, mirrored: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The needs of `batch` for samples [..., B], with their random augmentation.

        All on the CPU, of the same leading dimensions. mirrored: [rows of the split] bool, for an
        alternating flip.
        """
        rows = indices if self._part is None else self._part[indices]
        decided = {"indices": indices}
        if not self._inputs.marked:
            decided["labels"] = self.labels[indices]
        drawn = draw_augmentation(indices.shape, self._augment, self._padding, generator)
        if "alternating" in self._augment:
            assert mirrored is not None, (
                "an alternating flip is decided for the whole split: `mirrored_in_turn`"
            )
            drawn["mirrored"] = mirrored[rows]
        if self._columns is None:
            return {**decided, "rows": rows, **drawn}
        unmoved = torch.full((), self._padding)
        height, width = self._images.shape[2:]
        first = (rows * height + drawn.get("top", unmoved)) * width + drawn.get("left", unmoved)
        turned = drawn.get("mirrored", torch.zeros_like(rows)).long()
        first = first + turned * (self._inputs[2] - 1)
        return {**decided, "first": first, "direction": 1 - 2 * turned}

    def batch(self, decided: Mapping[str, Tensor]) -> Batch:
        """The samples [B] of a decision, with their labels; its tensors are on the device."""
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
            # Normalised in one operation.
            torch.addcmul(self._shift, pixels, self._scale, out=images)
        else:
            if self.place == "streamed":
                images = decided["images"]
            else:
                images = self._images.index_select(0, decided["rows"])
            if not self._is_normalised:
                images = self._normalise(augmented(images, decided, self._padding))
        if self._inputs.marked:
            return Batch(images[:, :-1], images[:, -1].long(), decided["indices"])
        if self._inputs.carry_labels:
            targets = images[..., -1].long() - 1 if self._per_position else decided["labels"]
            return Batch(images[..., :-1], targets, decided["indices"])
        return Batch(images, decided["labels"], decided["indices"])

    def gather(self, rows: Tensor) -> Tensor:
        """Samples [B, ...] as stored, on the CPU, within the GPU's reach. rows: those of `decide`,
        [B]."""
        on_gpu = self.device.type == "cuda"
        stored = self._images.dtype
        shape = self._inputs.stored
        found = torch.empty(len(rows), *shape, dtype=stored, pin_memory=on_gpu)
        return torch.index_select(self._images, 0, rows, out=found)

    def images(self, start: int, stop: int) -> Tensor:
        """Samples in order, not augmented: [stop - start, ...] float32, normalised; or int32."""
        if self._part is None:
            images = self._images[start:stop]
        else:
            images = self._images[self._part[start:stop].to(self._images.device)]
        images = images.to(self.device)
        if self._columns is not None:  # padded
            height, width = self._inputs[1:]
            images = images.narrow(2, self._padding, height).narrow(3, self._padding, width)
        images = images if self._is_normalised else self._normalise(images)
        if self._inputs.carry_labels:
            return images[:, :-1] if self._inputs.marked else images[..., :-1]
        return images

    def _normalise(self, images: Tensor) -> Tensor:
        return torch.sub(images, self._mean).div_(self._std)


def place_of(size: int, device: torch.device) -> str:
    """The place of so many bytes of images: `mapped` from a file, `resident`, or `streamed`."""
    if device.type == "cpu":
        return "mapped"
    if device.type != "cuda":
        return "resident"
    total = torch.cuda.get_device_properties(device).total_memory
    if 2 * size <= torch.cuda.get_per_process_memory_fraction() * total:
        return "resident"
    return "streamed"


def padding_of(augment: str, padding: int | None, inputs: Inputs) -> int:
    """Zeros on each side of an image before a crop, in pixels; by default 4 at 32."""
    if "crop" not in augment:
        return 0
    return padding or max(1, inputs[1] // 8)


def padded_bytes(count: int, inputs: Inputs, padding: int) -> int:
    """The bytes of so many samples; images are zero-padded on each side."""
    if inputs.kind != "image":
        return count * inputs.size
    channels, height, width = inputs.stored
    return count * channels * (height + 2 * padding) * (width + 2 * padding)


def draw_augmentation(
    shape: Sequence[int], kind: str, padding: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """The random choices of `augmented` for samples in batches of this shape, by name.

    kind: none, flip, crop, crop_flip. Crop: torchvision's RandomCrop(H, padding) with zero padding.
    Flip: horizontal, with probability 1/2.
    """
    drawn = {}
    device = generator.device
    if "crop" in kind:
        corners = torch.randint(2 * padding + 1, (2, *shape), generator=generator, device=device)
        drawn["top"], drawn["left"] = corners
    if "flip" in kind and "alternating" not in kind:
        turned = torch.randint(2, tuple(shape), generator=generator, device=device)
        drawn["mirrored"] = turned.bool()
    return drawn


def mirrored_in_turn(samples: int, generator: torch.Generator, epoch: int) -> Tensor:
    """[samples] bool, mirrored in this epoch: at random in epoch 0, then by turns.

    No two epochs in a row show the same side of an image. Jordan 2024, Section 3.6. generator: the
    same in every epoch.
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
    # [N, C, 2p + 1, 2p + 1, H, W], a view.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(images), device=images.device), :, top, left]
