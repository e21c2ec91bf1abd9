"""Images with masks in the cache and in batches, against NumPy, pixel by pixel."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tests.loading.test_batches import generator
from tests.masks import CLASSES, Masks, images_with_masks, prepared_masks
from trainables.dataset import RawData, RawSplit
from trainables.inputs import Inputs
from trainables.loading import batches, marks
from trainables.loading.batches import DeviceSplit, mirrored_in_turn
from trainables.loading.cache import (
    Prepared,
    Split,
    load_split,
    mapped_split,
    prepare,
    split_of_rows,
)
from trainables.loading.shift import ShiftSet, shift_of, unseen_shift
from trainables.loading.trial_data import meta_of
from trainables.positions import Positions
from trainables.problems import FieldError

KINDS = ["none", "flip", "crop", "crop_flip", "alternating_flip", "crop_alternating_flip"]


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return prepared_masks(tmp_path, count=60)


def split_of(images: np.ndarray) -> Split:
    positions, labels = marks.rows_of(images, 0, "train")
    where = Positions(*torch.from_numpy(positions).T.contiguous())
    return split_of_rows(torch.from_numpy(images), torch.from_numpy(labels), None, where)


def test_rows_are_labelled_pixels_and_each_image_has_as_many_as_it_may(prepared: Prepared) -> None:
    for name in ("train", "validation"):
        split = load_split(prepared, name)
        assert split.marked is not None and split.positions is not None
        masks = split.marked[:, -1].numpy()
        expected = [(row, *place) for row in range(len(masks)) for place in np.argwhere(masks[row])]
        width = masks.shape[2]
        found = [
            (image, place // width, place % width)
            for image, place in zip(*map(torch.Tensor.tolist, split.positions), strict=True)
        ]
        assert found == expected  # 14 x 18 pixels are fewer than 1,024
        assert split.labels.tolist() == [masks[row] - 1 for row in expected]
        assert prepared.rows[name] == len(expected)
        # Groups are numbered by first appearance: an image without rows has no number.
        numbers = {image: at for at, image in enumerate(dict.fromkeys(row[0] for row in expected))}
        assert split.groups is not None
        assert split.groups.tolist() == [numbers[row[0]] for row in expected]
        assert split.images.shape[1] == 3


@pytest.mark.parametrize(
    ("count", "most", "side"), [(3, 1024, 40), (2**9, 2**9, 30), (2**12 + 99, 64, 12)]
)
def test_rows_are_drawn_once_by_seed_and_not_too_many(count: int, most: int, side: int) -> None:
    images = np.ones((count, 2, side, side), dtype=np.uint8)
    images[1, -1] = 0
    images[1, -1, 7, 3:8] = 2
    positions, labels = marks.rows_of(images, 0, "test")
    again, _ = marks.rows_of(images, 0, "test")
    other, _ = marks.rows_of(images, 1, "test")
    counts = np.bincount(positions[:, 0])
    assert counts[1] == 5 and set(np.delete(counts, 1)) == {most}
    assert np.array_equal(positions, again) and not np.array_equal(positions, other)
    assert len(np.unique(positions, axis=0)) == len(positions)
    assert np.array_equal(positions, positions[np.lexsort(positions.T[::-1])])
    assert labels[positions[:, 0] == 1].tolist() == [1] * 5
    first = positions[positions[:, 0] == 0, 1]
    assert first.mean() == pytest.approx(side**2 / 2, rel=0.25)  # all over the image


def test_statistics_leave_the_mask_out(prepared: Prepared) -> None:
    pixels = load_split(prepared, "train").images.numpy().astype(np.float64)
    assert prepared.mean == pytest.approx(pixels.mean((0, 2, 3)))
    assert prepared.std == pytest.approx(pixels.std((0, 2, 3)))
    assert tuple(prepared.input_shape) == (3, 14, 18) and prepared.input_shape.marked
    assert prepared.input_shape.stored == (4, 14, 18)


def test_each_class_is_divided_alike_and_the_rarest_is_in_train(tmp_path: Path) -> None:
    images = images_with_masks(100)
    images[:, -1][images[:, -1] == 3] = 1
    images[7, -1, 0, 0] = 3  # the only pixel of its class
    images[::4, -1][images[::4, -1] == 2] = 1  # a quarter of the images has no road

    class Rare(Masks):
        def read(self) -> RawData:
            split = RawSplit(images, np.zeros(100, dtype=np.int64))
            return RawData(CLASSES, split, marked=True)

    made = prepare(Rare(), 0, tmp_path)
    for name in ("train", "validation", "test"):
        split = mapped_split(made.directory, name)
        assert split.marked is not None
        present = marks.classes_in(split.marked.numpy(), 3)
        assert present[:, 1].mean() == pytest.approx(0.75, abs=0.08)
        assert present[:, 2].any() == (name == "train")
    assert sum(made.sizes.values()) == 100
    assert made.sizes["test"] == pytest.approx(20, abs=2)
    assert {note for note in made.notes if "tree" in note} == {
        "validation has no pixel of tree",
        "test has no pixel of tree",
    }


def test_groups_of_images_stay_whole_and_are_those_of_rows(tmp_path: Path) -> None:
    made = prepared_masks(tmp_path, count=60, drives=12)
    splits = {name: mapped_split(made.directory, name) for name in ("train", "validation", "test")}
    assert sum(made.groups.values()) == 12 and min(made.groups.values()) >= 2
    for name, split in splits.items():
        assert split.groups is not None and split.positions is not None
        assert len(split.groups) == len(split.labels) == made.rows[name]
        assert int(split.groups.max()) + 1 == made.groups[name]


def test_a_meta_split_is_of_images(prepared: Prepared) -> None:
    held_out = meta_of(prepared, 0.2, 0)
    assert len(held_out) == prepared.sizes["train"]
    assert int(held_out.sum()) == pytest.approx(0.2 * len(held_out), abs=2)
    split = load_split(prepared, "train")
    data = DeviceSplit(split, prepared.mean, prepared.std, "cpu")
    rows = held_out.nonzero().squeeze(-1)
    part = data.subset(rows, "none")
    assert split.positions is not None and part.positions is not None
    chosen = torch.isin(split.positions.images, rows)
    assert torch.equal(part.labels, split.labels[chosen])
    assert torch.equal(rows[part.positions.images], split.positions.images[chosen])


@pytest.mark.parametrize("place", ["mapped", "resident", "streamed"])
@pytest.mark.parametrize("augment", KINDS)
@pytest.mark.parametrize("size", [(6, 6), (5, 9)])
def test_an_augmented_mask_is_that_of_the_augmented_image(
    size: tuple[int, int], augment: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masks made of the red channel are that of the moved channel, and 0 in the padding."""
    images = images_with_masks(60, *size)
    images[:, 0] = np.maximum(images[:, 0], 1)  # 0 is padding alone
    images[:, -1] = images[:, 0] // 2
    monkeypatch.setattr(batches, "place_of", lambda size, device: place)
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    whole = DeviceSplit(split_of(images), mean, std, "cpu", augment, padding=2)
    part = whole.subset(torch.arange(0, 60, 2), augment)
    mirrored = mirrored_in_turn(60, generator(), 0)
    for data in (whole, part):
        decided = data.decide(torch.randperm(30, generator=generator()), generator(1), mirrored)
        if place == "streamed":
            decided["images"] = data.gather(decided["rows"])
        batch = data.batch(decided)
        assert batch.images.shape == (30, 3, *size) and batch.targets.dtype == torch.int64
        red = batch.images[:, 0].round().long()
        assert torch.equal(batch.targets, red // 2 - 1)
        assert ("crop" in augment) == bool((batch.images.sum(1) == 0).any())
        assert data.images(3, 20).shape == (17, 3, *size)
        assert len(data) == (60 if data is whole else 30)


def test_images_alone_and_with_masks_are_the_same_batches() -> None:
    images = images_with_masks(20)
    mean, std = (100.0, 120.0, 140.0), (50.0, 60.0, 70.0)
    alone = Split(torch.from_numpy(images[:, :3]), torch.zeros(20, dtype=torch.int64))
    ours, theirs = (
        DeviceSplit(split, mean, std, "cpu", "crop_flip") for split in (split_of(images), alone)
    )
    order = torch.randperm(20, generator=generator())
    found, expected = (data.batch(data.decide(order, generator(1))) for data in (ours, theirs))
    assert torch.equal(found.images, expected.images)
    assert torch.equal(ours.images(2, 9), theirs.images(2, 9))


def test_rows_are_taken_of_what_a_network_gives_for_each_pixel() -> None:
    split = split_of(images_with_masks(7))
    assert split.positions is not None
    values = torch.randn(7, 4, 14, 18, generator=generator())
    expected = torch.stack(
        [
            values[image, :, place // 18, place % 18]
            for image, place in zip(*map(torch.Tensor.tolist, split.positions), strict=True)
        ]
    )
    assert_close(split.positions.at(values), expected, rtol=0, atol=0)
    parts = [split.positions.at(values[start : start + 3], start) for start in (0, 3, 6)]
    assert_close(torch.cat(parts), expected, rtol=0, atol=0)


def test_a_class_that_train_lacks_is_refused_and_an_empty_split(tmp_path: Path) -> None:
    images = images_with_masks(12)
    images[:, -1][images[:, -1] == 2] = 1
    with pytest.raises(FieldError, match="no pixel of train is of the class 'road'"):
        marks.check_classes({"train": marks.classes_in(images, 3)}, CLASSES)
    present = marks.classes_in(images_with_masks(12), 3)
    with pytest.raises(FieldError, match="no image of test has a labelled pixel"):
        marks.check_classes({"train": present, "test": np.zeros((3, 3), dtype=bool)}, CLASSES)
    notes = marks.check_classes({"train": present, "validation": present[1:3]}, CLASSES)
    assert notes == (
        "1 image of train has no labelled pixel: it is in no loss and no prediction",
        "validation has no pixel of tree",
    )


def test_a_shift_set_has_masks_too_and_its_rows_are_kept_by_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path))
    study = prepared_masks(tmp_path, count=60)
    seen = load_split(study, "train").marked
    assert seen is not None
    images = images_with_masks(2000, seed=1)
    images[5] = seen[3].numpy()  # one of 2,000, with another mask
    images[5, -1] = 1

    class Other(Masks):
        def read(self) -> RawData:
            split = RawSplit(images, np.zeros(len(images), dtype=np.int64))
            return RawData(CLASSES[::-1], split, marked=True)

    other = ShiftSet(Other(count=2000))
    shift = unseen_shift(other, {}, study)
    assert not shift.ood and shift.dropped == 1 and shift.positions is not None
    assert (~shift.kept).nonzero().tolist() == [[5]]
    where = shift.positions
    assert torch.equal(shift.kept_rows, where.images != 5)
    masks = torch.from_numpy(images[:, -1]).long()
    # Its classes are named in the other order.
    assert torch.equal(shift.labels, 3 - masks.flatten(1)[where.images, where.places])
    assert shift.groups is not None and torch.equal(shift.groups, where.images)
    assert shift.images.shape == (2000, 3, 14, 18)
    with pytest.raises(FieldError, match="its images have masks, the study's have none"):
        shift_of(other, CLASSES, Inputs((3, 14, 18)))
