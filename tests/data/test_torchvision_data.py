"""torchvision's sets, read from miniatures of their files. `file:` URLs are the internet here."""

import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.data.torchvision_files import WRITERS
from trainables.data import find, names
from trainables.data.shared.torchvision import TorchvisionData
from trainables.inputs import Inputs
from trainables.loading.cache import data_digest, load_split, prepare
from trainables.loading.shift import ShiftSet, check_header
from trainables.problems import FieldError

every_set = pytest.mark.parametrize("name", WRITERS)


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is the internet, and a cache of our own."""
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "internet").mkdir()
    return tmp_path / "internet"


def test_all_of_them_are_tested() -> None:
    assert {name for name in names() if issubclass(find(name), TorchvisionData)} == set(WRITERS)


@every_set
def test_reads_what_the_files_hold(
    name: str, tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = WRITERS[name](tmp_path / "set", internet, monkeypatch)
    shutil.rmtree(internet)  # with `path` nothing is downloaded
    data = find(name)(path=str(tmp_path / "set")).read()
    assert data.validation is None and len(data.classes) == splits[0][1].max() + 1
    for found, (images, labels) in zip((data.train, data.test), splits, strict=True):
        assert (
            found is not None and found.images.dtype == np.uint8 and found.labels.dtype == np.int64
        )
        assert np.array_equal(found.images, images)
        assert np.array_equal(found.labels, labels)


@every_set
def test_its_header_tells_what_it_holds(
    name: str, tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS[name](tmp_path / "set", internet, monkeypatch)
    data = find(name)(path=str(tmp_path / "set"))
    samples = data.samples()
    monkeypatch.setattr(find(name), "load", None)
    header = data.samples_header()
    assert header.shape == samples.images.shape[1:]
    if not name.startswith("cifar"):  # whose class names are decoded with the images
        assert header.labels is not None and (header.labels.tolist(), header.names) == (
            [*range(10)],
            samples.names,
        )
    with pytest.raises(FieldError, match="is the study's own data"):
        used = find(name)(limit=100).source_rows()
        check_header(ShiftSet(data), used, tuple("0123456789"), Inputs((3, 96, 96)))
    with pytest.raises(FieldError, match=r"path: .*nowhere does not contain"):
        find(name)(path="/nowhere").samples_header()


@every_set
def test_downloads_once_and_then_needs_no_internet(
    name: str, tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (images, _), _ = WRITERS[name](tmp_path / "set", internet, monkeypatch)
    shutil.rmtree(tmp_path / "set")
    assert np.array_equal(find(name)().read().train.images, images)
    shutil.rmtree(internet)
    assert np.array_equal(find(name)().read().train.images, images)
    kept = [
        file.name for file in (tmp_path / "cache" / "downloads" / name).rglob("*") if file.is_file()
    ]
    assert (
        not [file for file in kept if file.endswith((".tar.gz", ".partial"))]
        and "unlabeled_X.bin" not in kept
    )


@every_set
def test_its_digest_is_known_without_a_file_and_is_of_the_published_files(
    name: str, tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = find(name)
    real = dataset().source_digest()
    assert dataset(path="/nowhere").source_digest() == real
    assert dataset(augment="flip", validation=0.5).source_digest() == real
    assert dataset(limit=1000).source_digest() != real
    WRITERS[name](tmp_path / "set", internet, monkeypatch)
    assert dataset().source_digest() != real


@every_set
def test_without_internet_one_line_says_which_files_to_give(
    name: str, tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS[name](tmp_path / "set", internet, monkeypatch)
    shutil.rmtree(internet)
    with pytest.raises(FieldError) as error:
        find(name)().read()
    said = error.value.problem
    assert error.value.path == "path" and "\n" not in said
    assert said.startswith(f"cannot be downloaded ({internet.as_uri()}/") and "No such file" in said
    assert "Set `path` to a folder, on every node, with" in said
    assert all(file.path in said for file in find(name)().files())


@every_set
def test_missing_and_damaged_files_are_named(
    name: str, tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS[name](tmp_path / "set", internet, monkeypatch)
    dataset = find(name)(path=str(tmp_path / "set"))
    *_, file = dataset.files()
    content = (tmp_path / "set" / file.path).read_bytes()
    (tmp_path / "set" / file.path).write_bytes(content[:-1])
    with pytest.raises(FieldError, match=re.escape(f"{file.path} is not the published file")):
        dataset.read()
    (tmp_path / "set" / file.path).unlink()
    with pytest.raises(
        FieldError, match=re.escape(f"does not contain {file.path}. Add them, or remove `path`")
    ):
        dataset.read()


def test_a_damaged_download_is_downloaded_again(
    tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (images, _), _ = WRITERS["cifar10"](tmp_path / "set", internet, monkeypatch)
    find("cifar10")().read()
    (
        tmp_path / "cache" / "downloads" / "cifar10" / "cifar-10-batches-py" / "test_batch"
    ).write_bytes(b"torn")
    assert np.array_equal(find("cifar10")().read().train.images, images)


def test_an_archive_that_is_another_is_not_unpacked(
    tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS["cifar10"](tmp_path / "set", internet, monkeypatch)
    (internet / "cifar-10-python.tar.gz").write_bytes(b"a page that asks for a login")
    with pytest.raises(FieldError, match="is a different file, md5"):
        find("cifar10")().read()


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_pickle_that_was_not_published_runs_nothing(
    name: str, tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CIFAR's files are pickles."""
    WRITERS[name](tmp_path / "set", internet, monkeypatch)
    dataset, mark = find(name)(path=str(tmp_path / "set")), tmp_path / "mark"
    assert isinstance(dataset, TorchvisionData)
    for file in dataset.files():
        path = tmp_path / "set" / file.path
        published = path.read_bytes()
        path.write_bytes(pickle.dumps(Opens(mark)))
        with pytest.raises(FieldError, match=re.escape(f"{file.path} is not the published file")):
            dataset.read()
        path.write_bytes(published)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Opens(mark)))
    assert mark.exists(), "it would have run"


class Opens:
    """A pickle of it opens a file for writing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.path), "w")


def test_limit_is_stratified(
    tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS["cifar10"](tmp_path / "set", internet, monkeypatch)
    data = find("cifar10")(path=str(tmp_path / "set"), limit=30).read()
    for split in (data.train, data.test):
        assert np.bincount(split.labels).tolist() == [3] * 10
    with pytest.raises(FieldError, match="limit: 9 is too few for 10 classes"):
        find("cifar10")(path=str(tmp_path / "set"), limit=9).read()


def test_is_prepared_like_any_other(
    tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS["svhn"](tmp_path / "set", internet, monkeypatch)
    here = find("svhn")(validation=0.25)
    prepared = prepare(here, seed=0)
    assert prepared.sizes == {"train": 30, "validation": 10, "test": 40}
    assert prepared.input_shape == (3, 32, 32) and load_split(prepared, "train").images.shape == (
        30,
        3,
        32,
        32,
    )
    # A node that is given the files is of one mind with one that downloads them.
    assert data_digest(find("svhn")(validation=0.25, path="/elsewhere"), 0) == prepared.digest


@pytest.mark.parametrize(
    ("name", "md5"),
    [
        # Of the archives' listings, on the pages of the sets themselves.
        ("cifar10", "c58f30108f718f92721af3b95e74349a"),
        ("cifar100", "eb9058c3a382ffc7106e4002c42a8d85"),
    ],
)
def test_the_archives_are_those_their_authors_publish(name: str, md5: str) -> None:
    assert find(name)().archive().md5 == md5


@every_set
def test_a_file_replaced_while_it_is_read_is_named(
    name: str, tmp_path: Path, internet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS[name](tmp_path / "set", internet, monkeypatch)
    dataset = find(name)(path=str(tmp_path / "set"))
    *_, file = dataset.files()
    load = find(name).load

    def replacing(self: TorchvisionData, root: str) -> object:
        data = load(self, root)
        (tmp_path / "set" / file.path).write_bytes(b"other")
        return data

    monkeypatch.setattr(find(name), "load", replacing)
    with pytest.raises(FieldError, match=re.escape(f"{file.path} is not the published file")):
        prepare(dataset, 0, tmp_path / "cache")
