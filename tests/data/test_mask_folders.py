"""Folders of images and masks, and VOC 2012 in miniature; and what is said of bad ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_spaces import strict_yaml
from study.schema.reading import read_spec
from study.schema.spec import StudySpec
from tests.data.pngs import MASKS, WRONG, encoded, error_of, photo, stored
from trainables.data.mask_folder import MaskFolder
from trainables.data.voc import CLASSES, Voc
from trainables.loading.cache import load_split, prepare
from trainables.problems import FieldError

# ---- folders -------------------------------------------------------------------------------------


def folder(root: Path, count: int = 4) -> Path:
    """images/0.png, masks/0.png and so on."""
    for number in range(count):
        for name, content in (("images", photo(number)), ("masks", encoded(MASKS[number % 4]))):
            (root / name).mkdir(parents=True, exist_ok=True)
            (root / name / f"{number}.png").write_bytes(content)
    return root


def masked(root: Path, **options: Any) -> MaskFolder:
    return MaskFolder(path=str(root), **options)


def test_a_folder_of_images_and_one_of_masks(tmp_path: Path) -> None:
    """All is train; test and validation are drawn by seed."""
    data = masked(folder(tmp_path, 12), classes=["a", "b", "c"])
    raw = data.read()
    assert raw.marked and raw.test is None and raw.classes == ("a", "b", "c")
    order = sorted(range(12), key=str)
    assert raw.train.images[:, 0, 0, 0].tolist() == order
    assert raw.train.images[:, 3].tolist() == stored([MASKS[number % 4] for number in order])
    prepared = prepare(data, 0, tmp_path / "cache")
    assert prepared.input_shape.marked and sum(prepared.sizes.values()) == 12
    assert load_split(prepared, "train").images.shape[1:] == (3, 4, 6)


def test_a_file_beside_the_folders_names_the_classes(tmp_path: Path) -> None:
    """So void that is not said is no class more: its value is refused."""
    root = folder(tmp_path / "set")
    plain = masked(root).source_digest()
    (root / "classes.txt").write_text("a\nb\nc\n")
    assert masked(root).read().classes == ("a", "b", "c")
    assert masked(root, classes=["d", "e", "f"]).read().classes == ("d", "e", "f")
    assert masked(root).source_digest() != plain
    (root / "classes.txt").write_text("a\nb\n")
    assert "the mask has 2" in error_of(masked(root)).problem


def test_lists_say_which_images_a_split_has(tmp_path: Path) -> None:
    """Names with their ending or without; those of no list are counted."""
    root = folder(tmp_path / "set", 5)
    (root / "train.txt").write_text("0.png\n1\n\n")
    (root / "val.txt").write_text("3\n")
    raw = masked(root).read()
    assert raw.train.images[:, 0, 0, 0].tolist() == [0, 1] and raw.validation is None
    assert raw.test.images[:, 0, 0, 0].tolist() == [3]
    assert raw.notes == (f"2 images of {root} are in no list of a split",)
    (root / "held.txt").write_text("2\n")
    named = masked(root, splits={"train": "train.txt", "validation": "val.txt", "test": "held.txt"})
    raw = named.read()
    assert raw.validation.images[:, 0, 0, 0].tolist() == [3]
    assert raw.test.images[:, 0, 0, 0].tolist() == [2]
    assert named.source_digest() != masked(root).source_digest()
    assert len(named.samples().images) == 1 and named.samples_header().shape == (3, 4, 6)


def changed(root: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (root / name).unlink()
    else:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"images/1.png": None, "images/2.png": None}, "2 masks of {root} have no image, e.g. 1"),
        ({"images/2.jpg": b""}, "2.jpg and 2.png have one name"),
        ({"images/train/7.png": b""}, "{root}/images/train is a folder. Move its files up"),
        ({"masks/2.png": encoded(MASKS[2], kind="jpeg")}, "{root}/masks/2.png: the mask is a JPEG"),
        ({"images/3.png": photo(0, (4, 5))}, "{root}/images/3.png is 5x4 pixels, {root}/images/0"),
        ({"train.txt": b"0\n1\n8\n9\n"}, "train.txt has 2 names without an image, e.g. '8'"),
        ({"train.txt": b"0\n1\n0.png\n"}, "train.txt has '0' more than once"),
        ({"train.txt": b"0\n1\n", "test.txt": b"1\n"}, "test.txt has '1', which {root}/train.txt"),
    ],
)
def test_bad_folders(files: dict[str, bytes | None], said: str, tmp_path: Path) -> None:
    folder(tmp_path)
    for name, content in files.items():
        changed(tmp_path, name, content)
    assert said.format(root=tmp_path) in error_of(masked(tmp_path)).problem


def test_a_value_is_found_in_its_file(tmp_path: Path) -> None:
    changed(folder(tmp_path), "masks/1.png", encoded(WRONG))
    error = error_of(masked(tmp_path, classes=["a", "b", "c"]))
    assert error.problem.startswith(f"{tmp_path}/masks/1.png: the mask has 9 at row 0, column 3")


# ---- VOC -----------------------------------------------------------------------------------------


def voc(root: Path) -> Path:
    """VOC2012 with 21 images of train, each of one class and void, and one of val."""
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (root / name).mkdir(parents=True)
    for number in range(22):
        values = np.where(np.indices((6, 8))[1] < 4, number % 21, 255)
        (root / f"JPEGImages/2007_{number:02}.jpg").write_bytes(
            encoded(np.full((6, 8), 9 * number), "RGB", "jpeg")
        )
        (root / f"SegmentationClass/2007_{number:02}.png").write_bytes(encoded(values, "P"))
    listed = [f"2007_{number:02}" for number in range(22)]
    (root / "ImageSets/Segmentation/train.txt").write_text("\n".join(listed[:21]))
    (root / "ImageSets/Segmentation/val.txt").write_text(listed[21])
    return root


def test_voc_seals_its_val_images(tmp_path: Path) -> None:
    raw = Voc(path=str(voc(tmp_path / "VOC2012")), size=[6, 8]).read()
    assert raw.classes == CLASSES and len(CLASSES) == 21 and raw.marked and raw.validation is None
    assert raw.train.images.shape == (21, 4, 6, 8) and raw.test.images.shape == (1, 4, 6, 8)
    assert raw.train.images[:, 3, 0, [0, 7]].tolist() == [[number + 1, 0] for number in range(21)]
    with pytest.raises(FieldError, match=r"Did you mean .*/VOC2012\?"):
        Voc(path=str(tmp_path)).read()


def test_a_voc_file_that_is_missing(tmp_path: Path) -> None:
    file = voc(tmp_path) / "SegmentationClass/2007_07.png"
    file.unlink()
    said = f"train.txt names 1 file that cannot be found, e.g. {file}"
    assert said in error_of(Voc(path=str(tmp_path), size=8)).problem


# ---- a study -------------------------------------------------------------------------------------


def test_class_names_in_a_file_beside_the_study(tmp_path: Path) -> None:
    """The file may move; names in a list are of the study."""

    def spec(classes: Any) -> StudySpec:
        data = {"name": "mask_folder", "path": "street", "classes": classes}
        study = {"name": "s", "data": data, "model": "unet", "methods": ["cross_entropy"]}
        (tmp_path / "s.yaml").write_text(strict_yaml.dump(study))
        return read_spec(tmp_path / "s.yaml")

    found = spec("names.txt")
    assert found.data.classes == str(tmp_path / "names.txt")
    assert found.meaning() == spec("other.txt").meaning()
    assert spec(["a", "b"]).meaning()["data"]["classes"] == ["a", "b"]
