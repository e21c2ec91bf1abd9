"""Shared base of torchvision's data sets: published files, md5s, downloads.

torchvision publishes each set's files and their md5s: they identify the set without any file, and
every file is checked against them before it is read.
"""

import gzip
import hashlib
import json
import os
import shutil
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import numpy as np
from filelock import FileLock

from trainables.data.shared.splits import limited
from trainables.dataset import Dataset, Header, RawData, RawSplit, Rows
from trainables.fields import number, path_text
from trainables.files.atomic import replacing
from trainables.files.digest import file_digest
from trainables.files.download import DownloadError, download
from trainables.files.home import default_cache
from trainables.plain import Value
from trainables.plugins import name_of
from trainables.problems import FieldError


class Published(NamedTuple):
    """A file's path under torchvision's root, and its download URLs."""

    path: str
    md5: str
    urls: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TorchvisionData(Dataset, ABC):
    """Train and test as in the source; validation is carved from train."""

    theirs: ClassVar[Any]  # torchvision's class
    shape: ClassVar[tuple[int, int, int]]  # [C, H, W] of the published images
    class_names: ClassVar[Sequence[str] | None]  # None: not known before they are decoded
    # The options with which torchvision's class reads train, and test.
    parts: ClassVar[tuple[dict[str, str | bool], ...]] = ({"split": "train"}, {"split": "test"})

    path: str | None = path_text(
        None, doc="folder with the files in torchvision's layout; null: download"
    )
    limit: int | None = number(None, low=1, doc="maximum images per split, stratified by label")

    @abstractmethod
    def files(self) -> list[Published]:
        """The files to read."""

    def archive(self) -> Published | None:
        """The tar archive with the files, if they are not downloaded one by one."""
        return None

    def load(self, root: str) -> RawData:
        """Train and test from the verified files under `root`."""
        train, test = (self.theirs(root, **options) for options in self.parts)
        names = self.class_names or train.classes
        return RawData(tuple(names), self._split(train), test=self._split(test))

    def _split(self, data: Any) -> RawSplit:
        return RawSplit(np.ascontiguousarray(data.data), data.labels.astype(np.int64))

    def source_digest(self) -> str:
        published = [[file.path, file.md5] for file in self.files()]
        return hashlib.sha256(json.dumps([published, self.limit]).encode()).hexdigest()

    def read(self) -> RawData:
        root = self._root()
        data = self.load(str(root))
        self._check(root)  # again: a file may have been replaced while it was read
        assert data.test is not None
        taken = {}
        for name, split in (("train", data.train), ("test", data.test)):
            rows = limited(split.labels, self.limit, name, len(data.classes))
            taken[name] = RawSplit(split.images[rows], split.labels[rows])
        return RawData.of(data.classes, taken)

    def source_rows(self) -> Rows:
        # By name: `limit` and `path` make no other source.
        return {name_of(type(self)): np.zeros(1, dtype=np.int64)}

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        self._refuse_where(where)
        self._root()
        header = Header(self.source_rows(), self.shape)
        if self.class_names is None:
            return header
        labels = np.arange(len(self.class_names))
        return header._replace(labels=labels, names=dict(enumerate(self.class_names)))

    def _root(self) -> Path:
        """The folder with the files, all checked, downloaded first if there is no `path`."""
        root = self._downloaded() if self.path is None else Path(self.path)
        self._check(root)
        return root

    def _check(self, root: Path) -> None:
        missing = [file.path for file in self.files() if not (root / file.path).is_file()]
        if missing:
            problem = f"{root} does not contain {', '.join(missing)}"
            raise FieldError("path", problem, "Add them, or remove `path` to download them.")
        for file in self.files():
            found = file_digest(root / file.path, "md5")
            if found != file.md5:
                md5 = f"md5 {found}, not {file.md5}"
                problem = f"{root / file.path} is not the published file ({md5})"
                raise FieldError("path", problem, "It may be truncated: copy it again.")

    def _downloaded(self) -> Path:
        """The cache folder with the files; missing or damaged ones are downloaded first."""
        root = default_cache() / "downloads" / name_of(type(self))
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / "lock"):
            with suppress(FieldError):
                self._check(root)
                return root
            archive = self.archive()
            try:
                for file in self.files() if archive is None else [archive]:
                    download(file.urls, root / file.path, "md5", file.md5)
            except DownloadError as error:
                wanted = ", ".join(file.path for file in self.files())
                fix = f"Set `path` to a folder, on every node, with {wanted}."
                raise FieldError("path", f"cannot be downloaded ({error})", fix) from None
            if archive is not None:
                self._unpack(root, root / archive.path)
        return root

    def _unpack(self, root: Path, archive: Path) -> None:
        """Unpack only the files to read; STL-10's archive has gigabytes of others."""
        wanted = [file.path for file in self.files()]
        with tarfile.open(archive) as tar:
            for member in tar:
                name = os.path.normpath(member.name)
                if name in wanted and (content := tar.extractfile(member)):
                    target = root / name
                    target.parent.mkdir(exist_ok=True)
                    with replacing(target) as file:
                        shutil.copyfileobj(content, file, 2**20)
        archive.unlink()


@dataclass(frozen=True, kw_only=True)
class PackedData(TorchvisionData, ABC):
    """Data sets that are downloaded in one archive."""

    def archive(self) -> Published | None:
        return Published(self.theirs.filename, self.theirs.tgz_md5, (self.theirs.url,))

    def files(self) -> list[Published]:
        listed = [*self.theirs.train_list, *self.theirs.test_list]
        return [Published(f"{self.theirs.base_folder}/{name}", md5) for name, md5 in listed]


@dataclass(frozen=True, kw_only=True)
class CifarData(PackedData, ABC):
    """CIFAR-10 and CIFAR-100: torchvision reads their pickles, after their md5s are checked."""

    shape = (3, 32, 32)
    class_names = None
    parts = ({"train": True}, {"train": False})

    def files(self) -> list[Published]:
        meta = self.theirs.meta
        names = Published(f"{self.theirs.base_folder}/{meta['filename']}", meta["md5"])
        return [*super().files(), names]

    def _split(self, data: Any) -> RawSplit:
        images = np.ascontiguousarray(data.data.transpose(0, 3, 1, 2))
        return RawSplit(images, np.array(data.targets, dtype=np.int64))


@dataclass(frozen=True, kw_only=True)
class MnistData(TorchvisionData, ABC):
    """MNIST and sets with its layout: grayscale, 28x28, 60,000 and 10,000 images."""

    shape = (1, 28, 28)
    parts = ({"train": True}, {"train": False})

    def files(self) -> list[Published]:
        folder = f"{self.theirs.__name__}/raw"
        return [
            Published(
                f"{folder}/{name}", md5, tuple(mirror + name for mirror in self.theirs.mirrors)
            )
            for name, md5 in self.theirs.resources
        ]

    def load(self, root: str) -> RawData:
        # torchvision reads unpacked files, which have no published md5: unpack them here again.
        with TemporaryDirectory() as unpacked:
            for file in self.files():
                target = (Path(unpacked) / file.path).with_suffix("")
                target.parent.mkdir(parents=True, exist_ok=True)
                with gzip.open(Path(root) / file.path) as content, target.open("wb") as written:
                    shutil.copyfileobj(content, written)
            return super().load(unpacked)

    def _split(self, data: Any) -> RawSplit:
        return RawSplit(data.data.numpy()[:, None], data.targets.numpy().astype(np.int64))
