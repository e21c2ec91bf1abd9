"""The cache and the splits: images here carry the number of their row, so a
sample can be followed."""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.patience import patient, wait_until
from trainables.data.digits import Digits
from trainables.data.shared.splits import ranks_in_class
from trainables.dataset import Dataset, Progress, RawData, RawSplit, nothing
from trainables.files.digest import sampled_digest
from trainables.inputs import Inputs
from trainables.loading import cache as module
from trainables.loading.cache import data_digest, load_split, open_prepared, prepare
from trainables.problems import FieldError

COUNTS = (50, 30, 20)  # samples of the three classes


def raw_split(counts: tuple[int, ...], first: int = 0) -> RawSplit:
    """Class-sorted [N, 2, 4, 4]; row i of all splits together holds i in both
    channels, the second plus 100."""
    labels = np.repeat(np.arange(len(counts)), counts)
    rows = np.arange(first, first + len(labels), dtype=np.uint8)
    images = np.broadcast_to(rows[:, None, None, None], (len(rows), 2, 4, 4)).copy()
    images[:, 1] += 100
    return RawSplit(images, labels)


@dataclass(frozen=True)
class Counted(Dataset):
    """Says how often it was read, in lines of a file."""

    log: str = ""
    seconds: float = 0.0
    given: dict[str, Any] = field(default_factory=dict)
    counts: tuple[int, ...] = COUNTS

    def source_digest(self) -> str:
        return hashlib.sha256(b"counted").hexdigest()

    def read(self) -> RawData:
        with open(self.log or "/dev/null", "a") as log:
            log.write("read\n")
        time.sleep(self.seconds)
        return RawData(("a", "b", "c"), raw_split(self.counts), **self.given)


@dataclass(frozen=True)
class Telling(Counted):
    def read(self, progress: Progress = nothing) -> RawData:
        progress(40, 100)
        return super().read()


def rows_of(prepared: Any, name: str) -> list[int]:
    """Which rows a split holds, in its order. The test file is read here as
    its later owner will."""
    return np.load(prepared.directory / f"{name}.npy")[:, 0, 0, 0].tolist()


def labels_of(prepared: Any, name: str) -> list[int]:
    return np.load(prepared.directory / f"{name}_labels.npy").tolist()


def test_splits_are_disjoint_and_complete(tmp_path):
    prepared = prepare(Counted(), 0, tmp_path)
    rows = [row for name in ("train", "validation", "test") for row in rows_of(prepared, name)]
    assert sorted(rows) == list(range(100))


def test_a_data_set_that_tells_how_far_it_is_is_listened_to(tmp_path):
    """An extension's `read` may take nothing."""
    told = []
    for dataset in (Counted(), Telling()):
        for _ in range(2):  # the second time it is in the cache
            prepare(
                dataset,
                0,
                tmp_path / type(dataset).__name__,
                progress=lambda *counts: told.append(counts),
            )
        assert told == ([] if type(dataset) is Counted else [(40, 100)])


def test_splits_are_stratified(tmp_path):
    prepared = prepare(Counted(validation=0.25), 0, tmp_path)
    # 50, 30, 20 samples: a fifth is test (10, 6, 4), of the other 40, 24, 16 a
    # quarter is validation.
    assert np.bincount(labels_of(prepared, "test")).tolist() == [10, 6, 4]
    assert np.bincount(labels_of(prepared, "validation")).tolist() == [10, 6, 4]
    assert np.bincount(labels_of(prepared, "train")).tolist() == [30, 18, 12]
    assert prepared.sizes == {"train": 60, "validation": 20, "test": 20}


def test_labels_stay_with_their_images(tmp_path):
    prepared = prepare(Counted(), 0, tmp_path)
    truth = np.repeat([0, 1, 2], COUNTS)
    for name in ("train", "validation", "test"):
        assert labels_of(prepared, name) == truth[rows_of(prepared, name)].tolist()


def test_no_split_is_class_sorted(tmp_path):
    prepared = prepare(Counted(given={"test": raw_split((20, 20, 20), 100)}), 0, tmp_path)
    for name in ("train", "validation", "test"):
        labels = labels_of(prepared, name)
        assert labels != sorted(labels)


def test_same_seed_same_splits_other_seed_other_splits(tmp_path):
    first, again = prepare(Counted(), 0, tmp_path / "a"), prepare(Counted(), 0, tmp_path / "b")
    other = prepare(Counted(), 1, tmp_path / "a")
    for name in ("train", "validation", "test"):
        assert rows_of(first, name) == rows_of(again, name)
        assert sorted(rows_of(first, name)) != sorted(rows_of(other, name))


def test_share_of_validation_does_not_move_the_sealed_test(tmp_path):
    one, other = (
        prepare(Counted(validation=0.1), 0, tmp_path),
        prepare(Counted(validation=0.4), 0, tmp_path),
    )
    assert rows_of(one, "test") == rows_of(other, "test")


def test_splits_of_the_source_are_kept(tmp_path):
    given = {"validation": raw_split((1, 1, 1), 100), "test": raw_split((2, 1, 1), 103)}
    prepared = prepare(Counted(given=given), 0, tmp_path)
    assert sorted(rows_of(prepared, "train")) == list(range(100))
    assert sorted(rows_of(prepared, "validation")) == [100, 101, 102]
    assert sorted(rows_of(prepared, "test")) == [103, 104, 105, 106]


def test_a_class_of_three_has_one_sample_in_each_split(tmp_path):
    prepared = prepare(Counted(counts=(3, 4, 3), validation=0.9), 0, tmp_path)
    for name in ("train", "validation", "test"):
        assert np.bincount(labels_of(prepared, name), minlength=3).min() == 1


def test_a_class_too_small_to_split_is_refused(tmp_path):
    with pytest.raises(
        FieldError,
        match="class 'b' has too few samples to split: train has 2, but train, test, val",
    ):
        prepare(Counted(counts=(5, 2, 5)), 0, tmp_path)
    given = {"test": raw_split((1, 1, 1))}
    assert prepare(Counted(counts=(5, 2, 5), given=given), 1, tmp_path).sizes["train"] > 0


def test_statistics_are_of_the_train_split_in_pixel_units(tmp_path):
    prepared = prepare(Counted(), 0, tmp_path)
    train = np.array(rows_of(prepared, "train"), dtype=np.float64)
    assert prepared.mean == pytest.approx((train.mean(), train.mean() + 100))
    assert prepared.std == pytest.approx((train.std(), train.std()))
    assert prepared.input_shape == (2, 4, 4)
    assert prepared.classes == ("a", "b", "c")
    assert prepared.num_classes == 3


def test_statistics_of_many_images_equal_numpy():
    images = np.random.default_rng(0).integers(0, 256, (10_000, 3, 2, 2), dtype=np.uint8)
    rows = np.arange(1, 10_000)
    found = Inputs(images.shape[1:]).statistics(images, rows)
    assert found["mean"] == pytest.approx(images[1:].mean(axis=(0, 2, 3)))
    assert found["std"] == pytest.approx(images[1:].std(axis=(0, 2, 3)))


def test_a_constant_channel_is_divided_by_one():
    constant = np.full((4, 1, 2, 2), 7, dtype=np.uint8)
    assert Inputs((1, 2, 2)).statistics(constant, np.arange(4)) == {
        "mean": [7.0],
        "std": [1.0],
    }


def test_ranks_count_up_within_each_class():
    labels = np.array([2, 0, 2, 2, 0, 1])
    ranks = ranks_in_class(labels, torch.Generator().manual_seed(0))
    assert [sorted(ranks[labels == label].tolist()) for label in range(3)] == [
        [0, 1],
        [0],
        [0, 1, 2],
    ]


def test_split_is_mapped_and_writing_to_it_leaves_the_file(tmp_path):
    prepared = prepare(Counted(), 0, tmp_path)
    split = load_split(prepared, "train")
    assert split.images.dtype == torch.uint8
    assert split.images.shape == (64, 2, 4, 4)
    assert split.labels.dtype == torch.int64
    assert split.images[:, 0, 0, 0].tolist() == rows_of(prepared, "train")
    before = rows_of(prepared, "train")
    split.images[:] = 0
    assert rows_of(prepared, "train") == before


@pytest.mark.parametrize("name", ["test", "test.npy", "../train", "train_labels"])
def test_the_test_split_is_sealed(tmp_path, name):
    prepared = prepare(Counted(), 0, tmp_path)
    with pytest.raises(ValueError, match="test is sealed"):
        load_split(prepared, name)


def test_digest_follows_what_the_arrays_depend_on():
    digest = data_digest(Counted(), 0)
    assert digest == data_digest(Counted(augment="crop_flip", padding=4), 0)
    others = {
        data_digest(Counted(), 1),
        data_digest(Counted(validation=0.3), 0),
        data_digest(Digits(), 0),
    }
    assert len(others | {digest}) == 4


def test_augment_shares_the_cache(tmp_path):
    log = tmp_path / "log"
    prepare(Counted(log=str(log)), 0, tmp_path)
    prepare(Counted(log=str(log), augment="flip"), 0, tmp_path)
    assert log.read_text() == "read\n"


def test_cache_stands_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "here"))
    assert prepare(Counted(), 0).directory == tmp_path / "here" / data_digest(Counted(), 0)
    monkeypatch.delenv("CALSTUDY_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert prepare(Counted(), 0).directory.parent == tmp_path / ".cache" / "calstudy"


def test_relative_cache_is_named_absolutely(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert prepare(Counted(), 0, Path("cache")).directory.parent == tmp_path / "cache"


def test_open_finds_what_prepare_left(tmp_path):
    prepared = prepare(Counted(), 0, tmp_path)
    assert open_prepared(prepared.directory) == prepared
    assert prepared.digest == prepared.directory.name == data_digest(Counted(), 0)
    with pytest.raises(ValueError, match="no prepared data set here"):
        open_prepared(tmp_path)


def test_meta_holds_the_digests_of_the_files(tmp_path):
    directory = prepare(Counted(), 0, tmp_path).directory
    digests = json.loads((directory / "meta.json").read_text())["sha256"]
    assert set(digests) == {file.name for file in directory.glob("*.npy")}
    assert len(digests) == 6
    for name, digest in digests.items():
        assert hashlib.sha256((directory / name).read_bytes()).hexdigest() == digest


@dataclass(frozen=True)
class Replaced(Counted):
    """Its file is replaced while it is read, perhaps so that reading fails."""

    path: str = ""
    fails: bool = False

    def source_digest(self) -> str:
        return hashlib.sha256(Path(self.path).read_bytes()).hexdigest()

    def read(self) -> RawData:
        Path(self.path).write_text("other")
        if self.fails:
            raise IndexError("row 7 is gone")
        return super().read()


@pytest.mark.parametrize("fails", [False, True])
def test_a_source_replaced_while_it_is_read_is_not_cached(tmp_path, fails):
    (source := tmp_path / "source").write_text("one")
    dataset = Replaced(path=str(source), fails=fails)
    before = data_digest(dataset, 0)
    with pytest.raises(FieldError) as refused:
        prepare(dataset, 0, tmp_path / "cache")
    said = (
        f"path: {source} was changed while it was read. Nothing is kept of it; run again once it is"
        " complete."
    )
    assert str(refused.value) == said
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"{before}.lock"]
    # Now it stays as it is.
    if not fails:
        assert prepare(dataset, 0, tmp_path / "cache").digest == data_digest(dataset, 0) != before


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", ["train.npy", "validation_labels.npy", "meta.json"])
def test_cache_files_are_checked_by_content_and_made_again(tmp_path, damage, capsys):
    log = tmp_path / "log"
    prepared = prepare(Counted(log=str(log)), 0, tmp_path)
    contents = {file.name: file.read_bytes() for file in prepared.directory.iterdir()}
    content = contents[damage]
    digit = re.search(rb'"std": \[\s+\d', content)
    flip(prepared.directory / damage, -1 if digit is None else digit.end() - 1)
    assert (prepared.directory / damage).stat().st_size == len(content)
    assert prepare(Counted(log=str(log)), 0, tmp_path) == prepared
    assert (
        capsys.readouterr().err
        == f"{prepared.directory}: {damage} is damaged; it is prepared again.\n"
    )
    assert log.read_text() == "read\nread\n"
    assert {file.name: file.read_bytes() for file in prepared.directory.iterdir()} == contents
    assert prepare(Counted(log=str(log)), 0, tmp_path) == prepared  # and no third time
    assert (log.read_text(), capsys.readouterr().err) == ("read\nread\n", "")


def test_a_sampled_digest_reads_little_and_tells_what_a_disk_does(tmp_path, monkeypatch):
    file = tmp_path / "large"
    with file.open("wb") as written:
        written.write(b"head")
        written.truncate(2**26)
    read, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *given: read.append(given[1]) or pread(*given))
    whole = sampled_digest(file)
    assert whole == sampled_digest(file) and sum(read) == 2 * 32 * 4096
    for place, content in ((0, b"x"), (2**26 - 1, b"x"), (2**24, b"\1" * 2**25), (2**26, b"x")):
        with file.open("r+b") as written:
            written.seek(place)
            written.write(content)
        whole, before = sampled_digest(file), whole
        assert whole != before
    os.truncate(file, 10)
    assert sampled_digest(file) != hashlib.sha256(b"").hexdigest()
    os.truncate(file, 0)
    assert sampled_digest(file)


@pytest.mark.parametrize("damage", ["test.npy", "train_labels.npy", "meta.json"])
@pytest.mark.parametrize("missing", [True, False])
def test_damaged_cache_is_made_again(tmp_path, damage, missing):
    log = tmp_path / "log"
    prepared = prepare(Counted(log=str(log)), 0, tmp_path)
    contents = {file.name: file.read_bytes() for file in prepared.directory.iterdir()}
    file = prepared.directory / damage
    if missing:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="prepare it again"):
        open_prepared(prepared.directory)
    assert prepare(Counted(log=str(log)), 0, tmp_path) == prepared
    assert log.read_text() == "read\nread\n"
    assert {file.name: file.read_bytes() for file in prepared.directory.iterdir()} == contents


def test_failure_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.Path, "write_text", full_disk)
        with pytest.raises(OSError, match="No space"):
            prepare(Counted(), 0, tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert prepare(Counted(), 0, tmp_path).sizes["test"] == 20


def test_unusable_source_leaves_nothing(tmp_path):
    with pytest.raises(FieldError):
        prepare(Counted(counts=(5, 1, 5)), 0, tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_two_who_ask_at_once_decode_once(tmp_path):
    log, found = tmp_path / "log", []
    dataset = Counted(log=str(log), seconds=0.1)
    threads = [
        threading.Thread(target=lambda: found.append(prepare(dataset, 0, tmp_path)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.read_text() == "read\n"
    assert found[0] == found[1]


SCRIPT = """
import os, sys
from pathlib import Path
from tests.loading.test_cache import Counted
from trainables.loading import cache as prepared
folder = Path(sys.argv[1])
counted = Counted(log=str(folder / "log"), seconds=2.0)
print(prepared.prepare(counted, 0, folder / "shared").directory)
prepared.Path.write_text = lambda *_: os._exit(9)
prepared.prepare(Counted(), 0, folder / "killed")
"""


@pytest.mark.slow
def test_another_process_decodes_for_both_and_once_killed_leaves_nothing_that_counts(tmp_path):
    root, log = Path(__file__).parents[2], tmp_path / "log"
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    other = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: log.exists() or other.poll() is not None)
    asked = prepare(Counted(log=str(log)), 0, tmp_path / "shared")  # while the other reads
    assert other.communicate(timeout=patient(120))[0] == f"{asked.directory}\n"
    assert log.read_text() == "read\n"
    assert other.returncode == 9
    digest, killed = data_digest(Counted(), 0), tmp_path / "killed"
    assert (killed / f"{digest}.partial" / "test.npy").exists()
    assert not (killed / digest).exists()
    prepared = prepare(Counted(), 0, killed)
    assert sorted(path.name for path in killed.iterdir() if path.is_dir()) == [digest]
    rows = [row for name in prepared.sizes for row in rows_of(prepared, name)]
    assert sorted(rows) == list(range(100))
