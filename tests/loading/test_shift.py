"""Sets of `shift:` from parquet files written here: whose classes they are, which samples,
and what does not fit."""

import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageFile

from trainables.data.parquet import Parquet
from trainables.inputs import Inputs
from trainables.loading.shift import Shift, ShiftSet, check_header, shift_of
from trainables.problems import FieldError

NUMBERS = tuple("0123456789")
ANIMALS = ("bird", "cat", "dog")


def png(value: int, size: tuple[int, int] = (8, 8)) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", size, value).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Row i has the grey value i; six rows with labels, four without."""
    columns = {
        "image": [png(value) for value in range(10)],
        "label": [2, 0, 1, 2, 0, 1, -1, -1, -1, -1],
        "group": ["mild"] * 3 + ["hard"] * 3 + ["strange"] * 4,
        "severity": [1, 1, 1, 5, 5, 5, 0, 0, 0, 5],
    }
    pq.write_table(pa.table(columns), tmp_path / "pack.parquet")
    return tmp_path / "pack.parquet"


def against(
    path: Path,
    classes: tuple[str, ...] = NUMBERS,
    shape: tuple[int, int, int] = (1, 8, 8),
    **own: Any,
) -> Shift:
    return shift_of(
        ShiftSet.read({"name": "parquet", "path": str(path), **own}), classes, Inputs(shape)
    )


def values(shift: Shift) -> list[int]:
    return shift.images[:, 0, 0, 0].tolist()


def test_rows_are_picked_by_their_columns(pack: Path) -> None:
    mild = against(pack, where={"group": "mild"})
    assert (values(mild), mild.labels.tolist(), mild.ood) == ([0, 1, 2], [2, 0, 1], False)
    assert values(against(pack, where={"group": "strange", "severity": 5})) == [9]


def test_other_classes_are_out_of_distribution(pack: Path) -> None:
    assert against(pack, where={"group": "strange"}).ood  # no labels at all
    # A label the study has not.
    assert against(pack, where={"group": "mild"}, classes=("0", "1")).ood
    assert against(pack, where={"group": "mild"}, ood=True).ood  # said so
    with pytest.raises(
        FieldError,
        match=r"ood: is false, but the samples are not of the study's classes: they have no labels",
    ):
        against(pack, where={"group": "strange"}, ood=False)


def test_classes_are_known_by_name_where_both_tell_them(pack: Path) -> None:
    """dog, cat and bird are 2, 0 and 1 in the file and 2, 1 and 0 in the study."""
    table = pq.read_table(pack)
    names = {2: "dog", 0: "cat", 1: "bird", -1: "whale"}
    told = table.append_column(
        "class", pa.array([names[label] for label in table["label"].to_pylist()])
    )
    pq.write_table(told, pack)
    mild = against(pack, ANIMALS, where={"group": "mild"})
    assert not mild.ood and [ANIMALS[label] for label in mild.labels.tolist()] == [
        "dog",
        "cat",
        "bird",
    ]
    # The study tells none: by number.
    assert not against(pack, NUMBERS, where={"group": "mild"}).ood
    fish = ("bird", "fish", "dog")
    assert against(pack, fish, where={"group": "mild"}).ood
    with pytest.raises(FieldError, match="the study has no class 'cat'"):
        against(pack, fish, where={"group": "mild"}, ood=False)


def test_any_data_set_is_one(tmp_path: Path) -> None:
    digits = shift_of(ShiftSet.read({"name": "digits"}), NUMBERS, Inputs((1, 8, 8)))
    assert len(digits.labels) == 1797 and not digits.ood
    for split, value in (("train", 1), ("test", 7)):
        for name in ("a", "b"):
            (tmp_path / "folder" / split / name).mkdir(parents=True)
            (tmp_path / "folder" / split / name / "x.png").write_bytes(png(value))
    folder = ShiftSet.read({"name": "image_folder", "path": str(tmp_path / "folder")})
    found = shift_of(folder, ("a", "b", "c"), Inputs((3, 8, 8)))
    assert values(found) == [7, 7] and not found.ood  # its test split
    assert (found.images[:, 0] == found.images[:, 2]).all()  # grey, to a model of colours


def test_it_is_decoded_once(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = against(pack, where={"group": "mild"})
    monkeypatch.setattr("trainables.data.parquet.decode", None)
    assert values(against(pack, where={"group": "mild"})) == values(first)
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({}, "4 of 10 samples have no label (-1). Select rows with `where`, or set ood: true"),
        ({"where": {"grup": "mild"}}, "has no column 'grup'. Did you mean 'group'?"),
        ({"where": {"group": "none"}}, 'matches {"group": "none"}'),
        ({"path": "/nowhere/x.parquet"}, "path: there is no /nowhere/x.parquet"),
        (
            {"shape": (3, 32, 32)},
            "its images are 1 x 8 x 8, the study's 3 x 32 x 32 (channels, height, width)",
        ),
        ({"name": "digits", "path": None}, "Digits has no 'path'"),
        ({"ood": "yes"}, "ood: must be true or false, got 'yes'."),
        ({"where": "mild"}, "where: must be a mapping, got 'mild'."),
    ],
)
def test_what_does_not_fit_is_said(pack: Path, own: dict[str, Any], said: str) -> None:
    inputs = Inputs(own.pop("shape", (1, 8, 8)))
    with pytest.raises(FieldError) as error:
        shift_of(ShiftSet.read({"name": "parquet", "path": str(pack), **own}), NUMBERS, inputs)
    assert said in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(FieldError) as earlier:
        check_header(
            ShiftSet.read({"name": "parquet", "path": str(pack), **own}), {}, NUMBERS, inputs
        )
    assert str(earlier.value) == str(error.value)


def test_a_header_is_read_without_pixels(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    for name in ("a", "b"):
        (tmp_path / "folder" / "train" / name).mkdir(parents=True)
        (tmp_path / "folder" / "train" / name / "x.png").write_bytes(png(1, (9, 7)))
    folder = {"name": "image_folder", "path": str(tmp_path / "folder")}
    rows = {"name": "parquet", "path": str(pack), "where": {"group": "hard"}}
    for fits, shape in (
        ({**folder, "size": 8}, (3, 8, 8)),
        (folder, (1, 7, 9)),
        (rows, (1, 8, 8)),
        (rows, (3, 8, 8)),
    ):
        assert check_header(ShiftSet.read(fits), {}, NUMBERS, Inputs(shape)) is False
    for other, shape, said in (
        (folder, (1, 9, 7), "its images are 1 x 7 x 9, the study's 1 x 9 x 7"),
        ({**folder, "ood": False}, (1, 7, 9), "ood: is false, .* the study has no class 'a'"),
    ):
        with pytest.raises(FieldError, match=said):
            check_header(ShiftSet.read(other), {}, ANIMALS, Inputs(shape))
    with pytest.raises(FieldError, match="the image cannot be decoded"):
        shift_of(ShiftSet.read(rows), NUMBERS, Inputs((1, 8, 8)))


def test_its_digest_is_as_ever(pack: Path) -> None:
    """Results in ledgers name it."""
    options = json.dumps(["image", "label", "split", None, None])
    source = hashlib.sha256(
        f"{options} {hashlib.sha256(pack.read_bytes()).hexdigest()}\n".encode()
    ).hexdigest()
    whole = json.dumps([1, "parquet", source, {"group": "mild"}]).encode()
    found = ShiftSet.read({"name": "parquet", "path": str(pack), "where": {"group": "mild"}})
    assert found.digest() == hashlib.sha256(whole).hexdigest()


def test_a_folder_has_no_columns() -> None:
    with pytest.raises(FieldError, match="where: Digits has no columns to select rows by"):
        shift_of(
            ShiftSet.read({"name": "digits", "where": {"group": "x"}}), NUMBERS, Inputs((1, 8, 8))
        )


def test_a_damaged_cache_is_made_again_and_a_source_replaced_meanwhile_is_not_kept(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = values(against(pack, ood=True))
    (directory,) = (tmp_path / "cache").glob("shift-*/")
    content = (directory / "images.npy").read_bytes()
    (directory / "images.npy").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert values(against(pack, ood=True)) == before
    assert capsys.readouterr().err == f"{directory}: images.npy is damaged; it is prepared again.\n"
    assert (directory / "images.npy").read_bytes() == content
    (directory / "meta.json").unlink()  # nothing tells whether it is damaged
    (directory / "images.npy").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert values(against(pack, ood=True)) == before and capsys.readouterr().err == ""
    assert (directory / "images.npy").read_bytes() == content

    shutil.rmtree(directory)
    samples = Parquet.samples

    def replacing(self: Parquet, *where: object) -> object:
        found = samples(self, *where)
        shutil.copy(tmp_path / "other.parquet", pack)
        return found

    pq.write_table(pq.read_table(pack).slice(1), tmp_path / "other.parquet")
    monkeypatch.setattr(Parquet, "samples", replacing)
    with pytest.raises(FieldError, match="was changed while it was read"):
        against(pack, ood=True)
    assert not list((tmp_path / "cache").glob("shift-*/"))
