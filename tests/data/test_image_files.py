"""Folders of images, Tiny-ImageNet and CUB-200-2011, written here in miniature, and
what is said of bad ones."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.bombs import png_of
from tests.data.pngs import of_16_bits
from trainables.data.cub200 import Cub200
from trainables.data.image_folder import ImageFolder
from trainables.data.shared import images
from trainables.data.shared.images import SLICE
from trainables.data.tiny_imagenet import TinyImagenet
from trainables.dataset import Dataset
from trainables.loading.cache import load_split, prepare
from trainables.problems import FieldError

Approved = Callable[..., None]


def image(path: Path, value: int, size: tuple[int, int] = (4, 4), mode: str = "RGB") -> Path:
    """An image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (value, value + 1, value + 2) if mode == "RGB" else value).save(path)
    return path


def folder(root: Path, **splits: dict[str, list[int]]) -> Path:
    """SPLIT/CLASS/0.png, 1.png, ... of these colours."""
    for split, classes in splits.items():
        for name, values in classes.items():
            (root / split / name).mkdir(parents=True, exist_ok=True)
            for index, value in enumerate(values):
                image(root / split / name / f"{index}.png", value)
    return root


def good(root: Path) -> Path:
    return folder(root, train={"cat": [1, 2, 3], "ant": [4, 5]}, test={"ant": [6], "cat": [7]})


def first(split: object) -> list[int]:
    return split.images[:, 0, 0, 0].tolist()


def error_of(dataset: Dataset) -> FieldError:
    with pytest.raises(FieldError) as caught:
        dataset.read()
    assert "\n" not in caught.value.problem
    return caught.value


# ---- folders -------------------------------------------------------------------------------------


def test_reads_the_classes_of_each_split_in_the_order_of_their_names(tmp_path: Path) -> None:
    data = ImageFolder(path=str(good(tmp_path))).read()
    assert data.classes == ("ant", "cat") and data.validation is None
    assert data.train.images.shape == (5, 3, 4, 4) and data.train.images.dtype == np.uint8
    assert first(data.train) == [4, 5, 1, 2, 3] and data.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert data.train.images[0, :, 0, 0].tolist() == [4, 5, 6]
    assert first(data.test) == [6, 7] and data.test.labels.tolist() == [0, 1]


def test_with_train_and_val_alone_val_is_sealed(tmp_path: Path) -> None:
    data = ImageFolder(
        path=str(folder(tmp_path, train={"a": [1], "b": [2]}, val={"a": [3], "b": [4]}))
    ).read()
    assert data.validation is None and first(data.test) == [3, 4]


def test_splits_name_the_folders_to_take(tmp_path: Path) -> None:
    folder(
        tmp_path,
        fit={"a": [1], "b": [2]},
        val={"a": [3], "b": [4]},
        held={"a": [5], "b": [6]},
        other={"c": [7]},
    )
    data = ImageFolder(
        path=str(tmp_path), splits={"train": "fit", "validation": "val", "test": "held"}
    ).read()
    assert (first(data.train), first(data.validation), first(data.test)) == ([1, 2], [3, 4], [5, 6])


def flat(root: Path) -> Path:
    """CLASS/0.png, ...: 20 cats, 10 dogs, each of its own colour."""
    for name, values in {"cat": range(20), "dog": range(100, 110)}.items():
        for value in values:
            image(root / name / f"{value}.png", value)
    return root


def test_class_folders_without_splits_are_split_by_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fifth of each class is sealed; then a quarter of each class's rest is validation."""
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    data = ImageFolder(path=str(flat(tmp_path / "set")), validation=0.25)
    raw = data.read()
    assert raw.classes == ("cat", "dog") and raw.validation is None and raw.test is None
    found = prepare(data, seed=0)
    colours = {}
    for name, cats, dogs in (("train", 12, 6), ("validation", 4, 2), ("test", 4, 2)):
        images, labels = (np.load(found.directory / f"{name}{end}.npy") for end in ("", "_labels"))
        assert np.bincount(labels).tolist() == [cats, dogs]
        assert np.array_equal(images[:, 0, 0, 0] >= 100, labels == 1)
        colours[name] = set(images[:, 0, 0, 0].tolist())
    # 30: each image is in one split.
    assert set.union(*colours.values()) == {*range(20), *range(100, 110)}
    with pytest.raises(ValueError, match="test is sealed"):
        load_split(found, "test")
    other = prepare(data, seed=1)
    assert set(np.load(other.directory / "test.npy")[:, 0, 0, 0].tolist()) != colours["test"]
    assert (
        prepare(ImageFolder(path=data.path, validation=0.25, splits={"train": "."}), seed=0).digest
        == found.digest
    )


def test_a_folder_with_a_train_folder_of_classes_has_splits_whatever_else_it_holds(
    tmp_path: Path,
) -> None:
    """The digest is of what was taken before class folders were recognized."""
    expected = ImageFolder(
        path=str(good(tmp_path)), splits={"train": "train", "test": "test"}
    ).source_digest()
    for loose in ("unlabelled", "train", "test"):
        image(tmp_path / loose / "0.png", 9)
    assert ImageFolder(path=str(tmp_path)).source_digest() == expected


@pytest.mark.parametrize(
    ("extra", "first", "then"),
    [
        ("test/0.png", "test", "cat"),
        ("train/0.png", "train", "cat"),
        ("test/cat/0.png", "test", "cat"),
        ("old/cat/0.png", "cat", "old"),
    ],
)
def test_folders_that_may_be_classes_or_splits(
    tmp_path: Path, extra: str, first: str, then: str, approved: Approved
) -> None:
    image(flat(tmp_path) / extra, 50)
    error = error_of(ImageFolder(path=str(tmp_path)))
    assert error.path == "splits" and f" {tmp_path} " in error.problem
    assert error.problem.index(f"'{first}'") < error.problem.index(f"'{then}'")
    approved(str(error))
    assert ImageFolder(path=str(tmp_path), splits={"train": "."}).read().classes[:2] == (
        "cat",
        "dog",
    )


def test_size_resizes_the_shorter_side_and_cuts_out_the_middle(tmp_path: Path) -> None:
    good(tmp_path)
    wide = Image.new("RGB", (16, 8))  # columns 0-3 black, 4-11 their own number, 12-15 black
    wide.paste((200, 100, 50), (4, 0, 12, 8))
    wide.save(tmp_path / "train" / "ant" / "0.png")
    data = ImageFolder(path=str(tmp_path), size=8).read()
    assert data.train.images.shape == (5, 3, 8, 8)
    # 8 is its height already: the middle 8x8 as it is, nothing of the black.
    assert np.array_equal(
        data.train.images[0], np.broadcast_to(np.array([200, 100, 50])[:, None, None], (3, 8, 8))
    )
    half = ImageFolder(path=str(tmp_path), size=4).read()
    assert (
        half.train.images.shape == (5, 3, 4, 4)
        and half.train.images[0, 0, 1:3, 1:3].tolist() == [[200] * 2] * 2
    )


def test_grey_stays_one_channel_and_among_colours_becomes_rgb(tmp_path: Path) -> None:
    for name, value in (("train/a", 1), ("train/b", 2), ("test/a", 3), ("test/b", 4)):
        image(tmp_path / name / "0.png", value, mode="L")
    assert ImageFolder(path=str(tmp_path)).read().train.images.shape == (2, 1, 4, 4)
    image(tmp_path / "train" / "a" / "1.png", 9)
    data = ImageFolder(path=str(tmp_path)).read()
    assert data.train.images[:, :, 0, 0].tolist() == [[1, 1, 1], [9, 10, 11], [2, 2, 2]]


def test_more_images_than_one_slice_stay_in_order(tmp_path: Path) -> None:
    values = [index % 250 for index in range(SLICE + 44)]
    folder(tmp_path, train={"a": [0], "b": [1]})
    pixels = [
        image(tmp_path / "train" / "a" / f"{index:04}.png", value, (1, 1))
        for index, value in enumerate(values)
    ]
    image(tmp_path / "train" / "a" / "0.png", 7, (1, 1))
    image(tmp_path / "train" / "b" / "0.png", 8, (1, 1))
    assert len(pixels) == len(values)
    told: list[tuple[int, int]] = []
    data = ImageFolder(path=str(tmp_path)).read(
        progress=lambda done, total: told.append((done, total))
    )
    assert first(data.train) == [7, *values, 8]
    assert told == [(SLICE, SLICE + 46), (SLICE + 46, SLICE + 46)]


def test_digest_is_of_the_images_their_places_and_the_options(tmp_path: Path) -> None:
    good(tmp_path / "one")
    good(tmp_path / "other")
    digest = ImageFolder(path=str(tmp_path / "one")).source_digest()
    assert ImageFolder(path=str(tmp_path / "other"), augment="flip").source_digest() == digest
    assert ImageFolder(path=str(tmp_path / "one"), size=2).source_digest() != digest
    assert ImageFolder(path=str(tmp_path / "one"), limit=2).source_digest() != digest
    image(tmp_path / "other" / "train" / "ant" / "0.png", 99)
    assert ImageFolder(path=str(tmp_path / "other")).source_digest() != digest
    (tmp_path / "one" / "train" / "ant" / "0.png").rename(
        tmp_path / "one" / "train" / "cat" / "9.png"
    )
    assert ImageFolder(path=str(tmp_path / "one")).source_digest() != digest


def test_a_truncated_image_is_named(tmp_path: Path, approved: Approved) -> None:
    file = image(good(tmp_path) / "train" / "ant" / "9.jpg", 50, (64, 64))
    file.write_bytes(file.read_bytes()[:-100])
    error = error_of(ImageFolder(path=str(tmp_path), size=4))
    assert error.path == "path" and f"{file}: " in error.problem
    assert "truncated" in error.problem  # Pillow's word
    approved(error.problem.partition(" (")[0])
    file.write_bytes(b"no image")
    error = error_of(ImageFolder(path=str(tmp_path), size=4))
    assert error.path == "path" and error.problem.startswith(f"{file}: ")
    approved(error.problem)


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    file = good(tmp_path) / "train" / "ant" / "0.png"
    file.write_bytes(png_of(50_000, 2_000))
    # A refusal that docs/why/security.md promises.
    said = (
        "the image cannot be decoded (it has 100,000,000 pixels, the limit is 80,000,000). Fix or"
        " remove it."
    )
    for size in (None, 4):
        assert error_of(ImageFolder(path=str(tmp_path), size=size)).problem == f"{file}: {said}"


DEEP = {
    "grey": of_16_bits(0),
    "RGB": of_16_bits(2),
    "grey and alpha": of_16_bits(4),
    "RGB and alpha": of_16_bits(6),
    "PPM": b"P6 2 1 1023 " + bytes(range(12)),
    "PPM in letters": b"P3 1 1 65535 1 2 3",
}


@pytest.mark.parametrize("content", DEEP.values(), ids=list(DEEP))
def test_more_than_8_bits_per_channel_are_refused_of_any_colours(
    content: bytes, tmp_path: Path, approved: Approved
) -> None:
    """Pillow drops their low byte in silence, or does not convert them."""
    file = good(tmp_path) / "train" / "ant" / "0.png"
    file.write_bytes(content)
    for size in (None, 4):
        error = error_of(ImageFolder(path=str(tmp_path), size=size))
        assert error.path == "path" and error.problem.startswith(f"{file}: ")
    approved(error.problem)
    with pytest.raises(FieldError, match="more than 8 bits"):
        images.shape_of(content)


def test_colours_of_5_and_6_bits_are_read(tmp_path: Path) -> None:
    """A BMP of 2x1 pixels, red and blue, 16 bits each."""
    header = struct.pack("<IiiHHIIiiII", 40, 2, 1, 1, 16, 3, 4, 0, 0, 0, 0)
    masks = struct.pack("<III", 0xF800, 0x07E0, 0x001F)
    pixels = struct.pack("<HH", 0xF800, 0x001F)
    start = 14 + len(header) + len(masks)
    content = b"BM" + struct.pack("<IHHI", start + 4, 0, 0, start) + header + masks + pixels
    assert images.decode(content).tolist() == [[[255, 0, 0], [0, 0, 255]]]


def test_files_that_are_not_read_are_counted_by_ending(tmp_path: Path) -> None:
    """Of the classes of the splits that are taken; not what systems hide."""
    good(tmp_path)
    ant = tmp_path / "train" / "ant"
    for name in ("1.gif", "2.GIF", "deep/3.gif", "a.jfif", "noted", ".DS_Store", "Thumbs.db"):
        (ant / name).parent.mkdir(exist_ok=True)
        (ant / name).write_bytes(b"")
    folder(tmp_path, other={"ant": [1]})
    (ant / ".cache").mkdir()
    for name in ("train/ant/.cache/a.txt", "other/ant/a.txt", "train/list.txt", "README.md"):
        (tmp_path / name).write_text("")
    assert ImageFolder(path=str(tmp_path)).left_out() == {".gif": 3, ".jfif": 1, "": 1}


def test_images_that_do_not_fit_into_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good(tmp_path)  # seven images of 4x4 pixels
    monkeypatch.setattr(images, "memory", lambda: 7 * 3 * 16)
    assert ImageFolder(path=str(tmp_path)).read().train.images.nbytes == 5 * 3 * 16
    monkeypatch.setattr(images, "memory", lambda: 7 * 3 * 16 - 1)
    # A refusal that docs/why/security.md promises.
    assert "7 images of 4x4 pixels take 0 GB" in error_of(ImageFolder(path=str(tmp_path))).problem


def test_a_file_replaced_while_it_is_decoded_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    root = good(tmp_path / "set")
    decode = images.decode

    def replacing(encoded: bytes, size: int | None) -> np.ndarray:
        image(root / "train" / "ant" / "0.png", 99)
        return decode(encoded, size)

    monkeypatch.setattr(images, "decode", replacing)
    with pytest.raises(FieldError, match=f"{root} .*changed") as caught:
        prepare(ImageFolder(path=str(root)), 0, tmp_path / "cache")
    approved(str(caught.value))
    assert not [found for found in (tmp_path / "cache").iterdir() if found.is_dir()]


def test_sizes_that_differ_want_a_size(tmp_path: Path, approved: Approved) -> None:
    file = image(good(tmp_path) / "train" / "ant" / "9.png", 5, (6, 3))
    error = error_of(ImageFolder(path=str(tmp_path)))
    assert (
        error.path == "size"
        and f"{file} is 6x3 pixels" in error.problem
        and "`size: 4`" in error.problem
    )
    approved(error.problem)


def test_folders_that_cannot_be_used(tmp_path: Path, approved: Approved) -> None:
    good(tmp_path)

    def said(**options: object) -> str:
        return str(error_of(ImageFolder(**{"path": str(tmp_path), **options})))

    for path in (
        tmp_path / "nowhere",
        tmp_path / "train" / "ant" / "0.png",
        tmp_path / "train" / "ant",
    ):
        error = error_of(ImageFolder(path=str(path)))
        assert error.path == "path" and f"{path} " in error.problem
        approved(error.problem)
    assert "has no split 'trian'. Did you mean 'train'?" in said(splits={"train": "trian"})
    (tmp_path / "test" / "bat").mkdir()
    assert "test has the class 'bat', which train does not have. Did you mean 'cat'?" in said()
    (tmp_path / "train" / "bat").mkdir()
    assert "'bat'" in said()
    approved(said())
    (tmp_path / "empty").mkdir()
    assert f"{tmp_path / 'empty'} " in said(splits={"train": "empty"})
    approved(said(splits={"train": "empty"}))
    folder(tmp_path, alone={"ant": [1]})
    assert "'ant'" in said(splits={"train": "alone"})
    approved(said(splits={"train": "alone"}))
    with pytest.raises(FieldError) as caught:
        ImageFolder(path=str(tmp_path), splits={"test": "test"})
    assert caught.value.path == "splits"
    approved(str(caught.value))


def test_a_class_with_too_few_images_to_split_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    folder(tmp_path / "set", train={"ant": [1], "cat": [2, 3, 4]}, test={"ant": [5], "cat": [6]})
    with pytest.raises(FieldError, match=r"'ant' .* train has 1\b") as caught:
        prepare(ImageFolder(path=str(tmp_path / "set")), seed=0)
    approved(str(caught.value))


# ---- Tiny-ImageNet -------------------------------------------------------------------------------


def tiny(root: Path) -> Path:
    """Two classes, listed out of order, with three train and two validation images each."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "wnids.txt").write_text("n02\nn01\n")
    (root / "words.txt").write_text(
        "n00\tentity\nn01\tgoldfish, Carassius auratus\nn02\tbullfrog\n"
    )
    for label, wnid in enumerate(("n01", "n02")):
        for index in range(3):
            image(
                root / "train" / wnid / "images" / f"{wnid}_{index}.JPEG", 100 * label + 10 * index
            )
    rows = []
    for index, wnid in enumerate(("n02", "n01", "n01", "n02")):
        image(root / "val" / "images" / f"val_{index}.JPEG", 40 * index)
        rows.append(f"val_{index}.JPEG\t{wnid}\t0\t32\t44\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(rows))
    image(root / "test" / "images" / "test_0.JPEG", 0)  # without a label, not read
    return root


def test_tiny_imagenet_seals_its_annotated_validation_images(tmp_path: Path) -> None:
    data = TinyImagenet(path=str(tiny(tmp_path))).read()
    assert data.classes == ("goldfish, Carassius auratus", "bullfrog") and data.validation is None
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.allclose(first(data.train), [0, 10, 20, 100, 110, 120], atol=2)  # JPEG
    assert data.test.labels.tolist() == [1, 0, 0, 1]
    assert np.allclose(first(data.test), [0, 40, 80, 120], atol=2)


def test_tiny_imagenet_that_cannot_be_used(tmp_path: Path, approved: Approved) -> None:
    def said() -> str:
        return str(error_of(TinyImagenet(path=str(tmp_path / "set"))))

    tiny(tmp_path / "set" / "tiny-imagenet-200")
    assert (
        f"there is no wnids.txt in {tmp_path / 'set'}. Did you mean"
        f" {tmp_path / 'set'}/tiny-imagenet-200?" in said()
    )
    tiny(tmp_path / "set")
    annotations = tmp_path / "set" / "val" / "val_annotations.txt"
    rows = annotations.read_text()
    annotations.write_text(rows + "val_9.JPEG\tn01\t0\t0\t0\t0\n")
    assert "val_annotations.txt, line 5: /" in said() and "val_9.JPEG" in said()
    approved(said())
    annotations.write_text(rows.replace("val_1.JPEG\tn01", "val_1.JPEG\tn03"))
    assert "val_annotations.txt, line 2: " in said() and "'n03'" in said()
    approved(said())
    annotations.unlink()
    assert " val/val_annotations.txt" in said()
    approved(said())


# ---- CUB-200-2011 --------------------------------------------------------------------------------


def cub(root: Path) -> Path:
    """Two species, five images of many sizes; numbers count from 1."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "classes.txt").write_text("1 001.Black_footed_Albatross\n2 002.Laysan_Albatross\n")
    names = [f"001.Black_footed_Albatross/a_{i}.jpg" for i in (1, 2)]
    names += [f"002.Laysan_Albatross/b_{i}.jpg" for i in (1, 2, 3)]
    for number, name in enumerate(names, start=1):
        image(root / "images" / name, 40 * number, (20 + number, 30))
    (root / "images.txt").write_text(
        "".join(f"{number} {name}\n" for number, name in enumerate(names, start=1))
    )
    (root / "image_class_labels.txt").write_text("1 1\n2 1\n3 2\n4 2\n5 2\n")
    (root / "train_test_split.txt").write_text("1 0\n2 1\n3 1\n4 0\n5 1\n")
    return root


def test_cub_splits_as_its_list_does(tmp_path: Path, approved: Approved) -> None:
    data = Cub200(path=str(cub(tmp_path)), size=8).read()
    assert data.classes == ("Black_footed_Albatross", "Laysan_Albatross")
    assert data.train.images.shape == (3, 3, 8, 8) and data.test.images.shape == (2, 3, 8, 8)
    assert data.train.labels.tolist() == [0, 1, 1] and data.test.labels.tolist() == [0, 1]
    assert np.allclose(first(data.train), [80, 120, 200], atol=2)
    assert np.allclose(first(data.test), [40, 160], atol=2)
    assert Cub200(path="/nowhere").size == 224
    error = error_of(Cub200(path="/nowhere"))
    assert error.path == "path" and "/nowhere" in error.problem
    approved(error.problem)


@pytest.mark.parametrize(
    ("name", "old", "new", "named"),
    [
        ("image_class_labels.txt", "3 2\n", "", "image 3"),
        ("image_class_labels.txt", "3 2\n", "3 7\n", "'7' for image 3"),
        ("train_test_split.txt", "4 0\n", "4 2\n", "'2' for image 4"),
        ("train_test_split.txt", "2 1\n", "2 0\n", "'Black_footed_Albatross'"),
        ("images.txt", "b_3.jpg", "b_9.jpg", "image 5 in images.txt, "),
    ],
    ids=["no label", "no such label", "no such split", "a class without train", "no file"],
)
def test_cub_with_lists_that_disagree(
    tmp_path: Path, name: str, old: str, new: str, named: str, approved: Approved
) -> None:
    file = cub(tmp_path) / name
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    said = str(error_of(Cub200(path=str(tmp_path))))
    assert named in said and (name in said or "Albatross" in named)
    approved(said)
