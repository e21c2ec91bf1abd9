"""Batches on a device, against NumPy and torchvision one image at a time."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torchvision.transforms import v2

from trainables.config import TrialConfig
from trainables.inputs import Inputs
from trainables.loading import batches
from trainables.loading.batches import (
    DeviceSplit,
    augmented,
    crop_images,
    draw_augmentation,
    mirrored_in_turn,
    padding_of,
)
from trainables.loading.cache import Split, prepare
from trainables.loading.trial_data import TrialData

MEAN, STD = (100.0, 120.0, 140.0), (50.0, 60.0, 70.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def augment_images(images: torch.Tensor, kind: str, draws: torch.Generator) -> torch.Tensor:
    """Images [N, C, H, W], each cropped or flipped by itself."""
    padding = padding_of(kind, None, Inputs(images.shape[1:]))
    return augmented(images, draw_augmentation(images.shape[:1], kind, padding, draws), padding)


def images_of(*shape: int) -> torch.Tensor:
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator(7))


@pytest.fixture
def split() -> Split:
    return Split(images_of(40, 3, 16, 16), torch.arange(40) % 10)


def definition(images: torch.Tensor) -> torch.Tensor:
    """Normalised in NumPy, float64."""
    mean, std = (np.array(values)[:, None, None] for values in (MEAN, STD))
    return torch.from_numpy((images.numpy().astype(np.float64) - mean) / std)


@pytest.mark.parametrize(("height", "width", "padding"), [(32, 32, 4), (8, 8, 1), (6, 9, 2)])
def test_crop_is_torchvisions(height, width, padding):
    images = images_of(9, 3, height, width)
    top = torch.randint(2 * padding + 1, (9,), generator=generator(1))
    left = torch.randint(2 * padding + 1, (9,), generator=generator(2))
    top[0], left[0], top[1], left[1] = 0, 0, 2 * padding, 2 * padding
    cropped = crop_images(images, top, left, padding)
    assert cropped.dtype == torch.uint8
    for i in range(9):
        padded = v2.functional.pad(images[i], [padding])
        assert torch.equal(
            cropped[i], v2.functional.crop(padded, int(top[i]), int(left[i]), height, width)
        )


def test_crop_in_the_middle_changes_nothing():
    images, middle = images_of(5, 1, 8, 8), torch.full((5,), 1)
    assert torch.equal(crop_images(images, middle, middle, 1), images)


@pytest.mark.parametrize(("height", "padding"), [(32, 4), (28, 3), (8, 1), (4, 1)])
def test_augmented_crop_moves_each_image_on_its_own_within_the_padding(height, padding):
    image = images_of(1, 1, height, height)
    moved = augment_images(image.expand(300, -1, -1, -1), "crop", generator())
    padded = torch.nn.functional.pad(image, (padding,) * 4)
    places = list(itertools.product(range(2 * padding + 1), repeat=2))
    windows = torch.stack([padded[0, :, y : y + height, x : x + height] for y, x in places])
    hits = (moved[:, None] == windows[None]).flatten(2).all(2)
    assert hits.sum(1).eq(1).all()
    # 300 draws: of 81 places at least half are seen, of 9 all, the furthest corners included.
    assert hits.any(0).sum() > len(places) / 2


@pytest.mark.parametrize("padding", [None, 1, 3])
def test_crops_reach_as_far_as_the_padding_and_no_further(padding):
    """Of ones, what the crop took of the padding is 0: its widest border on each
    side, over many draws."""
    ones = torch.ones(400, 1, 16, 16, dtype=torch.uint8)
    data = DeviceSplit(Split(ones, torch.zeros(400).long()), (0.0,), (1.0,), "cpu", "crop", padding)
    images = data.batch(data.decide(torch.arange(400), generator())).images
    widest = padding or 2  # an eighth of 16
    for side in (images, images.flip(2), images.transpose(2, 3), images.flip(3).transpose(2, 3)):
        assert (side == 0).all(dim=3).sum(dim=2).max() == widest
    part = data.subset(torch.arange(200), "crop")
    assert (part.batch(part.decide(torch.arange(200), generator())).images == 0).all(dim=3).sum(
        dim=2
    ).max() == widest


def test_half_of_the_images_are_mirrored():
    images = images_of(1000, 2, 4, 4)
    moved = augment_images(images, "flip", generator())
    mirrored = (moved == torch.from_numpy(images.numpy()[..., ::-1].copy())).flatten(1).all(1)
    same = (moved == images).flatten(1).all(1)
    assert (mirrored ^ same).all()
    assert 430 < mirrored.sum() < 570  # 4.4 standard deviations of 1000 fair coins


def test_crop_flip_does_both():
    images = images_of(64, 1, 16, 16)
    both = augment_images(images, "crop_flip", generator())
    cropped = augment_images(images, "crop", generator())
    mirrored = (both == cropped.flip(3)).flatten(1).all(1)
    assert (mirrored | (both == cropped).flatten(1).all(1)).all()
    assert 0 < mirrored.sum() < 64


def test_none_is_none():
    images = images_of(5, 3, 8, 8)
    assert torch.equal(augment_images(images, "none", generator()), images)


def test_batch_holds_the_samples_asked_for(split):
    data = DeviceSplit(split, MEAN, STD, "cpu")
    indices = torch.tensor([3, 39, 3, 0])
    batch = data.batch(data.decide(indices, generator()))
    assert batch.images.dtype == torch.float32
    assert_close(batch.images.double(), definition(split.images[indices]), atol=1e-6, rtol=1e-6)
    assert batch.targets.tolist() == [3, 9, 3, 0]
    assert batch.indices.tolist() == [3, 39, 3, 0]
    assert len(data) == 40
    assert data.labels.tolist() == [i % 10 for i in range(40)]


def test_normalised_by_its_own_statistics_has_mean_0_and_std_1(split):
    pixels = split.images.numpy().astype(np.float64)
    data = DeviceSplit(
        split, pixels.mean((0, 2, 3)).tolist(), pixels.std((0, 2, 3)).tolist(), "cpu"
    )
    normalised = data.images(0, 40).numpy()
    assert normalised.mean((0, 2, 3)) == pytest.approx(np.zeros(3), abs=1e-5)
    assert normalised.std((0, 2, 3)) == pytest.approx(np.ones(3), abs=1e-5)


def test_a_split_too_large_to_keep_normalised_gives_the_same_bits(split, monkeypatch):
    kept = DeviceSplit(split, MEAN, STD, "cpu")
    monkeypatch.setattr(batches, "NORMALISED_BYTES", 4 * split.images.numel() - 1)
    made = DeviceSplit(split, MEAN, STD, "cpu")
    indices = torch.tensor([5, 1, 30])
    first, second = (data.batch(data.decide(indices, generator())).images for data in (made, kept))
    assert torch.equal(first, second)
    assert torch.equal(made.images(4, 9), kept.images(4, 9))
    assert made._images.data_ptr() == split.images.data_ptr()


def test_same_generator_same_batch_other_generator_other_batch(split):
    data, indices = DeviceSplit(split, MEAN, STD, "cpu", "crop_flip"), torch.arange(40)
    first, again, other = (
        data.batch(data.decide(indices, generator(seed))).images for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_augmented_batch_is_the_augmented_images_normalised(split):
    indices = torch.arange(10, 20)
    data = DeviceSplit(split, MEAN, STD, "cpu", "crop_flip")
    batch = data.batch(data.decide(indices, generator(3)))
    moved = augment_images(split.images[indices], "crop_flip", generator(3))
    assert_close(batch.images.double(), definition(moved), atol=1e-6, rtol=1e-6)
    assert batch.targets.tolist() == list(range(10))


@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_images_for_prediction_are_never_augmented(split, augment):
    images = DeviceSplit(split, MEAN, STD, "cpu", augment).images(10, 25)
    assert_close(images.double(), definition(split.images[10:25]), atol=1e-6, rtol=1e-6)


def test_neither_batches_nor_predictions_change_the_split(split):
    before = split.images.clone()
    for augment in ("none", "flip", "crop"):
        data = DeviceSplit(split, MEAN, STD, "cpu", augment)
        data.batch(data.decide(torch.arange(40), generator()))
        data.images(0, 40)
    assert torch.equal(split.images, before)


def test_an_alternating_flip_is_random_once_and_then_by_turns():
    turns = [mirrored_in_turn(1000, generator(), epoch) for epoch in range(5)]
    assert 430 < turns[0].sum() < 570  # 4.4 standard deviations of 1000 fair coins
    for before, after in itertools.pairwise(turns):
        assert torch.equal(after, ~before)
    assert not torch.equal(turns[0], mirrored_in_turn(1000, generator(1), 0))


@pytest.mark.parametrize("augment", ["alternating_flip", "crop_alternating_flip"])
def test_an_alternating_flip_goes_by_the_sample_whatever_its_batch(split, augment):
    """Of a subset, by the sample's row in the split: what a method leaves out changes
    no other sample's turn."""
    mirrored = mirrored_in_turn(40, generator(), 3)
    whole, part = DeviceSplit(split, MEAN, STD, "cpu", augment), torch.arange(39, -1, -3)
    for data, rows in ((whole, torch.arange(40)), (whole.subset(part, augment), part)):
        order = torch.randperm(len(rows), generator=generator(2))
        images = data.batch(data.decide(order, generator(5), mirrored)).images
        drawn = draw_augmentation(
            order.shape, augment.replace("alternating_flip", "none"), 2, generator(5)
        )
        for image, row, *corner in zip(images, rows[order].tolist(), *drawn.values(), strict=True):
            expected = split.images[row]
            if corner:
                expected = crop_images(expected[None], corner[0][None], corner[1][None], 2)[0]
            expected = (
                torch.from_numpy(expected.numpy()[..., ::-1].copy()) if mirrored[row] else expected
            )
            assert_close(image.double(), definition(expected), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "augment", ["none", "flip", "crop", "crop_flip", "alternating_flip", "crop_alternating_flip"]
)
@pytest.mark.parametrize("size", [(6, 6), (5, 9)])
def test_a_gather_of_resident_pixels_gives_the_same_images(augment, size, monkeypatch):
    """What a GPU does, on the CPU."""
    split = Split(images_of(60, 3, *size), torch.arange(60) % 7)
    mapped = DeviceSplit(split, MEAN, STD, "cpu", augment, padding=2)
    monkeypatch.setattr(batches, "place_of", lambda size, device: "resident")
    resident = DeviceSplit(split, MEAN, STD, "cpu", augment, padding=2)
    part, mirrored = torch.arange(0, 60, 2), mirrored_in_turn(60, generator(), 0)
    for ours, theirs in (
        (resident, mapped),
        (resident.subset(part, "none"), mapped.subset(part, "none")),
    ):
        indices = torch.randperm(30, generator=generator()).view(2, 15)
        decided, expected = (
            data.decide(indices, generator(1), mirrored) for data in (ours, theirs)
        )
        for step in range(2):
            batch = ours.batch({name: values[step] for name, values in decided.items()})
            other = theirs.batch({name: values[step] for name, values in expected.items()})
            # It normalises in one operation.
            assert_close(batch.images, other.images, rtol=0, atol=1e-6)
            assert torch.equal(batch.targets, other.targets)
            assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(ours.images(3, 20), theirs.images(3, 20))


def test_images_that_would_take_half_of_a_trials_memory_are_streamed(monkeypatch):
    """A GPU of 1000 bytes, of which a trial has 60%."""
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1000)
    )
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: 0.6)
    places = [batches.place_of(size, torch.device("cuda")) for size in (300, 301)]
    assert (
        places == ["resident", "streamed"]
        and batches.place_of(10**9, torch.device("cpu")) == "mapped"
    )
    assert batches.padded_bytes(10, Inputs((3, 4, 5)), 2) == 10 * 3 * 8 * 9
    asked: list[int] = []
    monkeypatch.setattr(batches, "place_of", lambda size, device: asked.append(size) or "mapped")
    config = TrialConfig.from_mapping(
        {"data": {"name": "digits", "augment": "crop"}, "model": "mlp", "method": "focal"}
    )
    TrialData(prepare(config.data, 0), torch.device("cpu"), "crop", 2)
    assert asked == 2 * [1151 * 12 * 12 + 287 * 8 * 8]  # the two splits lie there together


@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_streamed_images_are_the_same(augment, monkeypatch):
    split = Split(images_of(60, 3, 6, 6), torch.arange(60) % 7)
    mapped = DeviceSplit(split, MEAN, STD, "cpu", augment, padding=2)
    monkeypatch.setattr(batches, "place_of", lambda size, device: "streamed")
    streamed = DeviceSplit(split, MEAN, STD, "cpu", augment, padding=2)
    part = torch.arange(0, 60, 2)
    for ours, theirs in (
        (streamed, mapped),
        (streamed.subset(part, augment), mapped.subset(part, augment)),
    ):
        decided, expected = (
            data.decide(torch.randperm(30, generator=generator()), generator(1))
            for data in (ours, theirs)
        )
        batch = ours.batch({**decided, "images": ours.gather(decided["rows"])})
        assert torch.equal(batch.images, theirs.batch(expected).images)
        assert torch.equal(ours.images(3, 20), theirs.images(3, 20))
