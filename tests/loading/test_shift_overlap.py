"""Sets of `shift:` that share samples with the study: told by rows of its source, and
of others by their pixels."""

import io
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from trainables.config import build
from trainables.data.image_folder import ImageFolder
from trainables.data.parquet import Parquet
from trainables.dataset import Dataset, RawData, Samples
from trainables.inputs import Inputs
from trainables.loading.cache import load_split, prepare
from trainables.loading.shift import ShiftSet, check_header, unseen_shift
from trainables.problems import FieldError

CLASSES = ("0", "1")
GREY, COLOUR = Inputs((1, 8, 8)), Inputs((3, 8, 8))


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Row i has the grey value i: 20 to train on, 10 to test on, 10 that are in no split."""
    columns = {
        "image": [png(np.full((8, 8), row, np.uint8)) for row in range(40)],
        "label": [0, 1] * 20,
        "split": ["train"] * 20 + ["test"] * 10 + ["fog"] * 10,
        "half": (["a"] * 5 + ["b"] * 5) * 4,
    }
    pq.write_table(pa.table(columns), tmp_path / "pack.parquet")
    return tmp_path / "pack.parquet"


def is_own(study: Dataset, shape: Inputs = GREY, **shift: Any) -> bool:
    return check_header(ShiftSet.read(shift), study.source_rows(), CLASSES, shape)


def refusal(study: Dataset, **shift: Any) -> str:
    with pytest.raises(FieldError) as refused:
        is_own(study, **shift)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# ---- the study's own source ----------------------------------------------------------------------


def test_it_is_refused_whatever_its_name_and_options(pack: Path, tmp_path: Path) -> None:
    study = Parquet(path=str(pack))
    copy = shutil.copy(pack, tmp_path / "other.parquet")
    (tmp_path / "folder").mkdir()
    shutil.copy(pack, tmp_path / "folder" / "test.parquet")  # of a folder's files one is enough
    for path in (pack, copy, tmp_path / "folder"):
        for options in (
            {},
            {"limit": 4},
            {"ood": True},
            {"splits": {"train": "train", "test": "test"}},
        ):
            said = refusal(study, name="parquet", path=str(path), **options)
            assert said.startswith("is the study's own data, with its sealed test split.")
    assert "own data" in refusal(build(Dataset, "digits"), name="digits", validation=0.5)


def test_of_it_only_rows_of_no_split_are_taken(pack: Path) -> None:
    """The rows of each study, and of each set, as the grey values of the images they read."""
    path, train_on_a_half = str(pack), {"train": "a", "test": "b"}
    studies = [
        Parquet(path=path),
        Parquet(path=path, limit=4),
        Parquet(path=path, splits={"train": "train", "test": "fog"}),
        Parquet(path=path, splits=train_on_a_half, split_column="half", limit=6),
    ]
    wheres = [{"split": name} for name in ("train", "test", "fog")] + [
        {"split": "fog", "half": "b"},
        {"half": "a"},
    ]
    outcomes = set()
    for study in studies:
        raw = study.read()
        used = {
            int(row) for split in (raw.train, raw.test) if split for row in split.images[:, 0, 0, 0]
        }
        assert {int(row) for rows in study.source_rows().values() for row in rows} == used
        for where in wheres:
            shift = {"name": "parquet", "path": path, "where": where}
            wanted = [
                int(value) for value in ShiftSet.read(shift).data.samples(where).images[:, 0, 0, 0]
            ]
            shared = len(used & set(wanted))
            outcomes.add(bool(shared))
            if shared:
                assert f"where: {shared} of the {len(wanted)} rows are in the study's" in refusal(
                    study, **shift
                )
            else:
                assert is_own(study, **shift)
    assert outcomes == {True, False}


def test_rows_that_a_limit_leaves_are_in_no_split(tmp_path: Path) -> None:
    """The file tells which rows the study leaves, as its author might find out."""
    file = tmp_path / "pack.parquet"
    columns: dict[str, Any] = {"image": [png(np.full((8, 8), row, np.uint8)) for row in range(40)]}
    columns["label"] = [0, 1] * 20
    pq.write_table(pa.table({**columns, "left": [False] * 40}), file)
    used = Parquet(path=str(file), limit=10).read().train.images[:, 0, 0, 0]
    pq.write_table(pa.table({**columns, "left": [row not in used for row in range(40)]}), file)
    study = Parquet(path=str(file), limit=10)
    left = {"name": "parquet", "path": str(file), "where": {"left": True}}
    assert is_own(study, **left)
    found = unseen_shift(ShiftSet.read(left), study.source_rows(), prepare(study, 0))
    assert (
        sorted([*used, *found.images[:, 0, 0, 0].tolist()]) == [*range(40)] and found.dropped == 0
    )
    for where, said in (
        ({"left": False}, "10 of the 10 rows"),
        ({"label": 1}, "5 of the 20 rows"),
        ({}, "10 of the 40"),
    ):
        assert said in refusal(study, name="parquet", path=str(file), where=where)


def test_files_of_images_are_known_by_what_they_hold(tmp_path: Path) -> None:
    for number, (split, name) in enumerate(
        (s, n) for s in ("train", "test", "fog") for n in CLASSES
    ):
        (tmp_path / "set" / split / name).mkdir(parents=True)
        (tmp_path / "set" / split / name / "x.png").write_bytes(
            png(np.full((8, 8), number, np.uint8))
        )
    study = ImageFolder(path=str(tmp_path / "set"))
    shutil.copytree(tmp_path / "set" / "test", tmp_path / "copy" / "renamed")
    for options in (
        {"path": "set"},
        {"path": "set", "size": 8},
        {"path": "copy", "splits": {"train": "renamed"}},
    ):
        own = {**options, "path": str(tmp_path / options["path"])}
        assert "own data" in refusal(study, name="image_folder", **own)
    fog = {"train": "train", "test": "fog"}
    assert not is_own(study, name="image_folder", path=str(tmp_path / "set"), splits=fog)
    flat = ImageFolder(path=str(tmp_path / "set" / "train"))  # class folders alone
    for path in ("set/train", "set"):
        own = {"splits": {"train": "train"}} if path == "set" else {}
        assert "own data" in refusal(flat, name="image_folder", path=str(tmp_path / path), **own)
    assert not is_own(flat, name="image_folder", path=str(tmp_path / "set" / "fog"))


# ---- extensions, whose authors know only `source_digest` and `read` ------------------------------


@dataclass(frozen=True)
class Stripes(Dataset):
    """Stands for a file of an extension."""

    header: int = 1  # a name of the author's

    def source_digest(self) -> str:
        return str(self.header)

    def read(self) -> RawData:
        raise AssertionError("decoded")


class Chosen(Stripes):
    def samples(self, where: dict[str, Any] | None = None) -> Samples:
        raise AssertionError("decoded")


class Inverted(ImageFolder):
    """Other samples of the same files: what is inherited of them would be wrong."""

    def read(self) -> RawData:
        raise AssertionError("decoded")


def test_an_extension_is_decoded_by_confirm_alone(tmp_path: Path) -> None:
    for name in CLASSES:
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "train" / name / f"{name}.png").write_bytes(png(np.zeros((4, 4), np.uint8)))
    study = build(Dataset, "digits").source_rows()
    for data in (Stripes(), Chosen(), Inverted(path=str(tmp_path))):
        assert check_header(ShiftSet(data), study, CLASSES, GREY) is False
    assert check_header(ShiftSet(Chosen(), where={"any": 1}), study, CLASSES, GREY) is False
    with pytest.raises(FieldError, match="where: Stripes has no columns"):
        check_header(ShiftSet(Stripes(), where={"any": 1}), study, CLASSES, GREY)
    used = Chosen().source_rows()
    # Its pixels will tell.
    assert check_header(ShiftSet(Chosen(header=2)), used, CLASSES, GREY) is False
    # Which rows, nobody can tell.
    for own in (ShiftSet(Chosen()), ShiftSet(Chosen(), where={"any": 1})):
        with pytest.raises(FieldError, match="the study's"):
            check_header(own, used, CLASSES, GREY)


# ---- other sources, by their pixels --------------------------------------------------------------


@pytest.fixture(params=[GREY, COLOUR], ids=["grey", "colour"], name="study")
def study_of(request: pytest.FixtureRequest, tmp_path: Path) -> Parquet:
    """Random images, each colour channel alike; of those in colour the first has another."""
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    encoded = [
        png(image if request.param == GREY else np.stack([image] * 3, axis=-1)) for image in images
    ]
    if request.param == COLOUR:
        encoded[0] = png(np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    table = {"image": encoded, "label": [0, 1] * 30, "split": ["train"] * 50 + ["test"] * 10}
    pq.write_table(pa.table(table), tmp_path / "study.parquet")
    return Parquet(path=str(tmp_path / "study.parquet"))


def other(folder: Path, study: Parquet, split: str, shared: int, size: int) -> ShiftSet:
    """A grey set of that size, the last of them images of the study, in another format of file."""
    prepared = prepare(study, 0)
    found = load_split(prepared, split).images.numpy()
    grey = [image[0] for image in found if (image == image[0]).all()][:shared]
    noise = np.random.default_rng(2).integers(0, 256, (size - shared, 8, 8), dtype=np.uint8)
    buffers = [io.BytesIO() for _ in range(size)]
    for buffer, image in zip(buffers, [*noise, *grey], strict=True):
        Image.fromarray(image).save(buffer, "bmp")
    columns = {
        "image": [buffer.getvalue() for buffer in buffers],
        "label": [0, 1] * (size // 2) + [0] * (size % 2),
    }
    pq.write_table(pa.table(columns), folder / "other.parquet")
    return ShiftSet.read({"name": "parquet", "path": str(folder / "other.parquet")})


@pytest.mark.parametrize(
    ("study", "split", "shared"),
    [
        pytest.param(GREY, "validation", 2, id="grey-validation"),
        pytest.param(COLOUR, "train", 1, id="colour-train"),
    ],
    indirect=["study"],
)
def test_a_thousandth_is_dropped(
    study: Parquet, split: str, shared: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.loading.shift.CHUNK", 70)
    shift = other(tmp_path, study, split, shared, 1000 * shared)
    found = unseen_shift(shift, study.source_rows(), prepare(study, 0))
    assert (found.dropped, len(found.images)) == (shared, 1000 * shared)
    assert found.kept.tolist() == [True] * 999 * shared + [False] * shared


@pytest.mark.parametrize("study", [GREY], indirect=True, ids=["grey"])
def test_more_are_refused(study: Parquet, tmp_path: Path) -> None:
    shift = other(tmp_path, study, "validation", 2, 1999)
    with pytest.raises(FieldError) as refused:
        unseen_shift(shift, study.source_rows(), prepare(study, 0))
    assert (
        str(refused.value)
        == "2 of its 1999 images are also in the study's train, meta or validation split, more than"
        " 0.1%. Remove them, or name other data."
    )


def test_samples_of_no_split_are_not_looked_at(study: Parquet, tmp_path: Path) -> None:
    """Nobody reads the sealed file for it."""
    shift, prepared = other(tmp_path, study, "train", 0, 30), prepare(study, 0)
    for name in ("test.npy", "test_labels.npy"):
        (prepared.directory / name).unlink()
    assert unseen_shift(shift, study.source_rows(), prepared).dropped == 0
