"""Images with masks from parquet files: what is read of good ones, and said of bad ones."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.pngs import MASKS, WRONG, encoded, error_of, of_few_bits, photo, stored
from trainables.data.parquet import Parquet
from trainables.data.shared.masks import decode_mask
from trainables.loading.cache import prepare
from trainables.loading.shift import ShiftSet, check_header
from trainables.problems import FieldError


def good(path: Path, **changes: Any) -> Path:
    """Three images of train and one of test, of three classes; row i has the grey i."""
    columns = {
        "image": [photo(value) for value in range(4)],
        "mask": [encoded(mask, mode) for mask, mode in zip(MASKS, "PLPL", strict=True)],
        "split": ["train"] * 3 + ["test"],
    }
    there = {name: of for name, of in {**columns, **changes}.items() if of is not None}
    pq.write_table(pa.table(there), path)
    return path


def parquet(path: Path, **options: Any) -> Parquet:
    return Parquet(path=str(path), mask="mask", **options)


def test_the_mask_is_the_last_channel_of_its_image(tmp_path: Path) -> None:
    raw = parquet(good(tmp_path / "a.parquet")).read()
    assert raw.marked and raw.classes == ("0", "1", "2") and raw.validation is None
    assert raw.train.images.shape == (3, 4, 4, 6) and raw.train.images.dtype == np.uint8
    assert raw.train.images[:, :3, 0, 0].tolist() == [[value] * 3 for value in range(3)]
    assert raw.train.images[:, 3].tolist() == stored(MASKS[:3])
    assert raw.test.images[:, 3].tolist() == stored(MASKS[3:])
    assert raw.train.labels.tolist() == [0, 0, 0]


def test_grey_images_among_colours_and_splits_among_each_other(tmp_path: Path) -> None:
    images = [photo(value, mode="L" if value else "RGB") for value in range(4)]
    masks = [{"bytes": encoded(mask), "path": "a.png"} for mask in MASKS]  # as on data hubs
    split = ["train", "test", "train", "train"]
    path = good(tmp_path / "a.parquet", image=images, mask=masks, split=split)
    raw = parquet(path).read()
    assert raw.train.images[:, :3, 1, 1].tolist() == [[value] * 3 for value in (0, 2, 3)]
    assert raw.train.images[:, 3].tolist() == stored([MASKS[0], MASKS[2], MASKS[3]])


def test_void_may_be_several_values_and_classes_have_names(tmp_path: Path) -> None:
    path = good(tmp_path / "a.parquet")
    (tmp_path / "names.txt").write_text("road\ncar\n\n")
    listed = parquet(path, void=[255, 2], classes=["road", "car"])
    raw = listed.read()
    assert raw.classes == ("road", "car")
    assert raw.train.images[:, 3].tolist() == stored(MASKS[:3], void=(2, 255))
    in_file = parquet(path, void=[2, 255], classes=str(tmp_path / "names.txt"))
    assert in_file.read().classes == raw.classes
    assert in_file.source_digest() == listed.source_digest()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_values_are_those_of_the_file_however_many_bits_it_has(bits: int) -> None:
    """Pillow stretches grey of 2 or 4 bits to 255."""
    values = np.random.default_rng(bits).integers(0, 2**bits, (5, 7))
    found = encoded(values, "1") if bits == 1 else of_few_bits(values, bits)
    assert decode_mask(found, (5, 7)).tolist() == values.tolist()
    assert decode_mask(encoded(values, "P"), (5, 7)).tolist() == values.tolist()


@pytest.mark.parametrize(("shape", "size"), [((48, 60), 12), ((31, 50), [16, 20]), ((9, 9), 20)])
def test_a_mask_is_cut_and_resized_as_its_image_by_the_nearest_pixel(
    shape: tuple[int, int], size: Any, tmp_path: Path
) -> None:
    """Against a loop over pixels; and an image of the mask's regions lies where they lie."""
    height, width = [size, size] if isinstance(size, int) else size
    mask = np.random.default_rng(0).integers(0, 200, shape)
    cut = min(shape[0] / height, shape[1] / width)  # pixels of the file in one of ours
    top, left = (shape[0] - cut * height) / 2, (shape[1] - cut * width) / 2
    wanted = np.zeros((height, width), dtype=np.uint8)
    for i in range(height):
        for j in range(width):
            wanted[i, j] = mask[int(top + (i + 0.5) * cut), int(left + (j + 0.5) * cut)]
    assert np.array_equal(decode_mask(encoded(mask, "P"), shape, size), wanted)

    rows, columns = np.indices(shape)
    region = (rows < shape[0] // 2) & (columns < shape[1] // 2)
    there = {
        "image": [encoded(np.where(region, 200, 0))],
        "mask": [encoded(np.where(region, 1, 255))],
        "split": ["train"],
    }
    (image,) = parquet(good(tmp_path / "a.parquet", **there), size=size).samples().images
    assert image.shape == (2, height, width)
    # A pixel to one side it is 0.04; but one at the region's corner may be of either.
    assert ((image[0] > 100) != (image[1] == 2)).mean() < 0.01


def test_only_what_is_given_is_in_the_digest(tmp_path: Path) -> None:
    """Without masks and `size` it is what it was before there were any."""
    path = good(tmp_path / "a.parquet", label=[0, 1, 0, 1])
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    before = hashlib.sha256(json.dumps(["image", "label", "split", None, None]).encode())
    before.update(f" {content}\n".encode())
    assert Parquet(path=str(path)).source_digest() == before.hexdigest()
    several = [{}, {"void": 7}, {"size": 4}, {"size": [4, 6]}, {"classes": ["a", "b", "c"]}]
    found = {parquet(path, **options).source_digest() for options in several}
    assert len(found | {before.hexdigest(), Parquet(path=str(path), size=4).source_digest()}) == 7


def test_a_shift_set_of_masks(tmp_path: Path) -> None:
    """Its classes may be fewer; without masks it does not fit."""
    prepared = prepare(parquet(good(tmp_path / "a.parquet")), 0, tmp_path / "cache")
    other = good(tmp_path / "b.parquet", mask=[encoded(np.ones((4, 6)))] * 4, label=[0] * 4)
    found = parquet(other).samples({"split": "test"})
    assert found.marked and found.images[:, 3].tolist() == [[[2] * 6] * 4]
    header = parquet(other, classes=["a", "b", "c"]).samples_header()
    assert header.marked and header.shape == (3, 4, 6) and header.labels is None
    assert header.names == {0: "a", 1: "b", 2: "c"}
    there = (prepared.classes, prepared.input_shape)
    assert not check_header(ShiftSet(parquet(other)), {}, *there)
    with pytest.raises(FieldError, match="its images have no masks, the study's have some"):
        check_header(ShiftSet(Parquet(path=str(other))), {}, *there)


def test_an_image_without_a_labelled_pixel_is_kept_and_said(tmp_path: Path) -> None:
    masks = [encoded(mask) for mask in [*MASKS, np.full((4, 6), 255)]]
    path = good(
        tmp_path / "a.parquet",
        image=[photo(value) for value in range(5)],
        mask=masks,
        split=["train"] * 3 + ["test", "train"],
    )
    data = parquet(path, validation=0.5)
    assert len(data.read().train.images) == 4
    notes = " ".join(prepare(data, 0, tmp_path / "cache").notes)
    assert "has no labelled pixel" in notes


READ = "Of a PNG with a palette the indices are read, not the colours."
BAD: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({1: encoded(np.zeros((6, 4)))}, {}, "mask", "row 1: the mask is 4x6 pixels, its image 6x4."),
    ({2: encoded(MASKS[2], "RGB")}, {}, "mask", "row 2: the mask is of colours (RGB)"),
    ({2: encoded(MASKS[2], "RGB")}, {}, "mask", READ),
    ({2: encoded(MASKS[2], "RGBA")}, {}, "mask", "row 2: the mask is of colours (RGBA)"),
    ({0: encoded(MASKS[0], kind="jpeg")}, {}, "mask", "row 0: the mask is a JPEG: compression"),
    ({0: encoded(MASKS[0], kind="tiff")}, {}, "mask", "row 0: the mask is a TIFF file, not PNG"),
    ({0: encoded(MASKS[0], "I;16")}, {}, "mask", "row 0: the mask has more than 8 bits"),
    ({0: b"none"}, {}, "mask", "row 0: the mask cannot be decoded (not an image"),
    (
        {1: encoded(WRONG)},
        {"classes": ["a", "b", "c"]},
        "mask",
        "row 1: the mask has 9 at row 0, column 3, neither a class (0 to 2) nor void;"
        " 3 pixels of 1 mask have it. Correct the masks, `void` or `classes`.",
    ),
    ({1: encoded(WRONG + 245)}, {}, "mask", "the largest value of the train masks is 254."),
    ({}, {"classes": ["a", "b", "c", "d"]}, "mask", "no mask of train has the class 'd' (3)"),
    ({}, {"void": [1, 255]}, "void", "1 is the number of a class, as the train masks have 0 to 2"),
    ({}, {"void": 7}, "mask", "the largest value of the train masks is 255."),
    ({}, {"void": [0, 1, 2, 255]}, "mask", "no pixel of the train masks has a label, all are void"),
    (
        dict.fromkeys(range(4), encoded([[0, 255] * 3] * 4)),
        {},
        "mask",
        "255 is void: where masks of 0 and 255 have two classes, write 0 and 1.",
    ),
]


@pytest.mark.parametrize(("cells", "options", "where", "said"), BAD)
def test_bad_masks_are_refused_by_row(
    cells: dict[int, Any], options: dict[str, Any], where: str, said: str, tmp_path: Path
) -> None:
    masks = [cells.get(row, encoded(mask)) for row, mask in enumerate(MASKS)]
    error = error_of(parquet(good(tmp_path / "a.parquet", mask=masks), **options))
    assert error.path == where and said in error.problem


TAKEN = "calstudy takes one class an image, or a mask; not several labels, nor boxes."
NUMBERS = "calstudy takes classes, not numbers to predict (regression)."


@pytest.mark.parametrize(
    ("columns", "options", "where", "said"),
    [
        ({"mask": None}, {"mask": "mask"}, "mask", "has no column 'mask'"),
        ({"mask": [[0, 1]] * 4}, {"mask": "mask"}, "mask", TAKEN),
        ({"mask": [0.5] * 4}, {"mask": "mask"}, "mask", NUMBERS),
        ({"label": [0.5] * 4}, {}, "label", NUMBERS),
        ({"label": [[0, 1]] * 4}, {}, "label", TAKEN),
        ({"label": [{"x": 1, "y": 2}] * 4}, {}, "label", TAKEN),
        (
            {"image": [photo(0), photo(0), photo(0, (3, 6)), photo(0)]},
            {"mask": "mask"},
            "image",
            "row 2: the image is 6x3 pixels, the one in",
        ),
    ],
)
def test_columns_that_are_no_masks_or_labels(
    columns: dict[str, Any], options: dict[str, Any], where: str, said: str, tmp_path: Path
) -> None:
    error = error_of(Parquet(path=str(good(tmp_path / "a.parquet", **columns)), **options))
    assert error.path == where and said in error.problem


def test_mixed_sizes_become_one(tmp_path: Path) -> None:
    images = [photo(0), photo(0), photo(0, (3, 6)), photo(0)]
    masks = [*map(encoded, MASKS[:2]), encoded(MASKS[2][:3]), encoded(MASKS[3])]
    path = good(tmp_path / "a.parquet", image=images, mask=masks, label=[0, 1, 0, 1])
    assert parquet(path, size=[3, 4]).read().train.images.shape == (3, 4, 3, 4)
    assert Parquet(path=str(path), size=2).read().train.images.shape == (3, 3, 2, 2)


@pytest.mark.parametrize(
    ("options", "where", "said"),
    [
        ({"mask": "m", "void": 256}, "void", "must be values of 0 to 255, got 256"),
        ({"mask": "m", "void": [True]}, "void", "must be values of 0 to 255, got True"),
        ({"mask": "m", "void": 1, "classes": ["a", "b"]}, "void", "1 is the class 'b'"),
        ({"mask": "m", "classes": ["a", "a"]}, "classes", "has 'a' twice"),
        ({"mask": "m", "classes": ["a", 3]}, "classes", "has 3, which is no name"),
        ({"mask": "m", "classes": list(map(str, range(255)))}, "classes", "has 255 names"),
        ({"mask": "m", "label": "y"}, "label", "'y' is given together with mask 'm'"),
        ({"mask": "image"}, "mask", "'image' is the image"),
        ({"void": 3}, "void", "is of masks"),
        ({"mask": "m", "size": [3]}, "size", "must be a side, or [height, width]"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(FieldError) as caught:
        Parquet(path="a.parquet", **options)
    assert caught.value.path == where and said in caught.value.problem
