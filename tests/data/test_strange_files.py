"""Pipes, devices and files without end in place of a data set's: one line, no wait, no memory."""

import os
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from study.evaluation.files import Columns
from study.evaluation.files import read as read_predictions
from tests.data.contract import SOURCES, Source
from tests.data.test_image_files import cub, tiny
from tests.data.test_mask_folders import voc
from tests.data.tree_files import write_negations
from trainables.data import find
from trainables.data.shared.columns import opened_parquet
from trainables.dataset import Dataset
from trainables.files import data_files
from trainables.loading.vocabulary import vectors_of
from trainables.models.shared.pretrained import read_state
from trainables.problems import FieldError

pytestmark = pytest.mark.timeout(60)  # a pipe would be waited for

ENDLESS = 2**40  # bytes of a file with one hole


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def zeros(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def endless(file: Path) -> None:
    file.write_bytes(b"")
    os.truncate(file, ENDLESS)


KINDS: dict[Callable[[Path], None], str] = {
    pipe: "is a pipe, not a file",
    zeros: "is a device, not a file",
    endless: "",
}


def published(name: str, write: Callable[[Path], Path]) -> Callable[[Path], Dataset]:
    def made(folder: Path) -> Dataset:
        dataset: Dataset = find(name)(path=str(write(folder)))
        return dataset

    return made


def with_group(source: Source) -> Callable[[Path], Dataset]:
    return lambda folder: source.made(folder, grouped=source.missing_group is not None)


def trees_with_vectors(folder: Path) -> Dataset:
    write_negations(folder, 40, 8)
    (folder / "vectors").write_text("not 0.5 0.5\n")
    dataset: Dataset = find("tree_bank")(path=str(folder), vectors=str(folder / "vectors"))
    return dataset


def masks_with_classes(folder: Path) -> Dataset:
    made = SOURCES["mask_folder"].made(folder)
    (Path(made.path) / "classes.txt").write_text("a\nb\n")  # type: ignore[attr-defined]
    return made


ALL: dict[str, Callable[[Path], Dataset]] = {
    **{name: with_group(source) for name, source in SOURCES.items()},
    "tree_bank with vectors": trees_with_vectors,
    "mask_folder with classes": masks_with_classes,
    "cub200": published("cub200", cub),
    "tiny_imagenet": published("tiny_imagenet", tiny),
    "voc": published("voc", voc),
}


def used(dataset: Dataset) -> None:
    """All that reads its files."""
    raw = dataset.read()
    if raw.words is not None and raw.words.vectors is not None:
        vectors_of(raw.words.vectors, raw.words.all)
    dataset.samples_header()


@pytest.mark.parametrize(
    ("name", "change"),
    [*product(ALL, (pipe, endless)), ("parquet", zeros), ("image_folder", zeros)],
)
def test_each_file_of_each_source_is_a_regular_one_of_a_size_that_fits(
    name: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    dataset = ALL[name](tmp_path / "a")
    used(dataset)
    refused = 0
    for file in kinds_of_files(tmp_path / "a"):
        content = file.read_bytes()
        change(file)
        with pytest.raises(FieldError) as caught:
            used(dataset)
        assert "\n" not in caught.value.problem
        assert KINDS[change] in caught.value.problem, file
        if change is not endless:
            with pytest.raises(FieldError, match=KINDS[change]):
                dataset.source_digest()
        refused += 1
        file.unlink()
        file.write_bytes(content)
    assert refused
    used(dataset)


def kinds_of_files(root: Path) -> list[Path]:
    """One of each kind in each folder: lists by name, samples by their ending."""
    found: dict[tuple[Path, str], Path] = {}
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        # Test images of Tiny-ImageNet and locks are never read.
        if file.suffix != ".lock" and not file.is_relative_to(root / "test/images"):
            is_sample = any(sign.isdigit() for sign in file.stem)
            found.setdefault((file.parent, file.suffix if is_sample else file.name), file)
    return list(found.values())


# ---- small files that would take gigabytes -------------------------------------------------------


def test_a_column_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.data.shared.columns.MOST_UNPACKED", 10**6)
    file = tmp_path / "a.parquet"
    cells = [bytes(2 * 10**6), bytes([1]) * 10**6]
    pq.write_table(pa.table({"image": cells, "label": [0, 1]}), file, compression="zstd")
    assert file.stat().st_size < 10**4
    with pytest.raises(FieldError, match=r"column 'image' of .* unpacks to 0\.0 GB") as caught:
        find("parquet")(path=str(file)).read()
    assert caught.value.path == "path" and "Write smaller row groups." in caught.value.problem
    noise = np.random.default_rng(0).bytes(2 * 10**6)  # as what is encoded looks
    pq.write_table(pa.table({"image": [noise], "label": [0]}), file, compression="zstd")
    with opened_parquet(file, 10**9) as source:
        assert source.metadata.num_rows == 1


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.npz"])
@pytest.mark.parametrize("change", KINDS)
def test_predictions_in_no_file_are_refused(
    name: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(b"")
    change(file)
    with pytest.raises(FieldError) as caught:
        read_predictions(file, Columns())
    assert KINDS[change] in str(caught.value)


class Memory:
    """What weights_only lets a pickle make."""

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return bytearray, (10**6,)


@pytest.mark.parametrize("is_zip", [True, False])
def test_weights_that_make_memory_are_refused_before_they_are_loaded(
    is_zip: bool, tmp_path: Path
) -> None:
    file = tmp_path / "a.pth"
    torch.save({"a": Memory()}, file, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(FieldError, match="makes memory"):
        read_state(file)
    torch.save({"a": torch.ones(2)}, file, _use_new_zipfile_serialization=is_zip)
    assert read_state(file)["a"].tolist() == [1, 1]


def records_of(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_weights_with_packed_records_are_refused(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.pth", tmp_path / "b.pth"
    torch.save({"a": torch.zeros(10**6)}, plain)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in records_of(plain).items():
            archive.writestr(name, content)
    assert packed.stat().st_size < 10**4
    with pytest.raises(FieldError, match="compressed record") as caught:
        read_state(packed)
    assert caught.value.path == "weights"


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
def test_weights_that_are_a_pipe_are_refused(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(FieldError, match="is a pipe, not a file"):
        read_state(tmp_path / name)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "MOST_LINE", 1000)
    file = tmp_path / "vectors"
    file.write_text("the 0.5 0.5\ncat " + "0.5 " * 400)
    with pytest.raises(FieldError, match="line 2 has more than") as caught:
        vectors_of(file, ["cat"])
    assert caught.value.path == "vectors"
    (tmp_path / "train.txt").write_text(f"(4 {'a' * 1000})\n")
    with pytest.raises(FieldError, match="line 1 has more than"):
        find("tree_bank")(path=str(tmp_path)).read()


def test_a_text_that_is_a_book_is_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.data.text.MOST_WORDS", 100)
    for source in ("text of parquet", "text in folders"):
        data = SOURCES[source].made(tmp_path / source)
        data.read()
        long = "a " * 60
        if source == "text of parquet":
            pq.write_table(
                pa.table({"text": [long, "b"], "y": [0, 1]}), tmp_path / source / "a.parquet"
            )
        else:
            (tmp_path / source / "set/train/0/00.txt").write_text(long)
        with pytest.raises(FieldError) as caught:
            data.read()
        assert caught.value.path == "text", caught.value
