"""Miniatures of the published files of torchvision's sets, in their formats, with
torchvision told of their md5s."""

import gzip
import hashlib
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from torchvision import datasets

from trainables.data.stl10 import Stl10

Arrays = tuple[np.ndarray, np.ndarray]  # images [N, C, H, W], labels [N]


def miniature(shape: tuple[int, int, int], classes: int, samples: int, seed: int) -> Arrays:
    images = np.random.default_rng(seed).integers(0, 256, (samples, *shape), dtype=np.uint8)
    return images, np.arange(samples, dtype=np.int64) % classes


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def pack(root: Path, folder: str, archive: Path) -> str:
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(root / folder, arcname=folder)
    return md5(archive)


def write_cifar(cls: type, labels_key: str, classes: int) -> Callable[..., tuple[Arrays, Arrays]]:
    """Pickled batches: rows of 3072 bytes, red, green, blue, and a list of labels."""

    def write(root: Path, internet: Path, patch: pytest.MonkeyPatch) -> tuple[Arrays, Arrays]:
        folder = root / cls.base_folder
        folder.mkdir(parents=True)
        parts = {"train": len(cls.train_list), "test": 1}
        whole, listed = {}, {"train": [], "test": []}
        for seed, (split, batches) in enumerate(parts.items()):
            whole[split] = miniature((3, 32, 32), classes, max(40 * batches, classes), seed)
            names = [name for name, _ in getattr(cls, f"{split}_list")]
            images, labels = (np.array_split(array, batches) for array in whole[split])
            for name, some, theirs in zip(names, images, labels, strict=True):
                batch = {"data": some.reshape(len(some), -1), labels_key: theirs.tolist()}
                (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
                listed[split].append([name, md5(folder / name)])
        meta = {cls.meta["key"]: [f"class {number}" for number in range(classes)]}
        (folder / cls.meta["filename"]).write_bytes(pickle.dumps(meta, protocol=2))
        patch.setattr(cls, "meta", {**cls.meta, "md5": md5(folder / cls.meta["filename"])})
        patch.setattr(cls, "train_list", listed["train"])
        patch.setattr(cls, "test_list", listed["test"])
        patch.setattr(cls, "url", (internet / cls.filename).as_uri())
        patch.setattr(cls, "tgz_md5", pack(root, cls.base_folder, internet / cls.filename))
        return whole["train"], whole["test"]

    return write


def write_mnist(cls: type) -> Callable[..., tuple[Arrays, Arrays]]:
    """IDX: a magic number of element type and dimensions, the sizes, all
    big-endian, then the bytes."""

    def write(root: Path, internet: Path, patch: pytest.MonkeyPatch) -> tuple[Arrays, Arrays]:
        folder = root / cls.__name__ / "raw"
        folder.mkdir(parents=True)
        resources, whole = (
            [],
            [miniature((1, 28, 28), 10, 40, 0), miniature((1, 28, 28), 10, 20, 1)],
        )
        for (images, labels), split in zip(whole, ("train", "t10k"), strict=True):
            for kind, array in (("images-idx3", images[:, 0]), ("labels-idx1", labels)):
                header = np.array([0x800 + array.ndim, *array.shape], dtype=">i4").tobytes()
                file = folder / f"{split}-{kind}-ubyte.gz"
                file.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))
                shutil.copy(file, internet)
                resources.append((file.name, md5(file)))
        patch.setattr(cls, "resources", resources)
        # The first mirror is down, as one of MNIST's has been for years.
        patch.setattr(cls, "mirrors", [f"{(internet / 'down').as_uri()}/", f"{internet.as_uri()}/"])
        return whole[0], whole[1]

    return write


def write_svhn(root: Path, internet: Path, patch: pytest.MonkeyPatch) -> tuple[Arrays, Arrays]:
    """MATLAB: X [32, 32, 3, N], y [N, 1] where the digit 0 is 10."""
    root.mkdir(parents=True)
    splits, whole = dict(datasets.SVHN.split_list), []
    for seed, split in enumerate(("train", "test")):
        images, labels = miniature((3, 32, 32), 10, 40, seed)
        file = root / splits[split][1]
        theirs = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        savemat(file, {"X": images.transpose(2, 3, 1, 0), "y": theirs})
        shutil.copy(file, internet)
        splits[split] = [(internet / file.name).as_uri(), file.name, md5(file)]
        whole.append((images, labels))
    patch.setattr(datasets.SVHN, "split_list", splits)
    return whole[0], whole[1]


def write_stl10(root: Path, internet: Path, patch: pytest.MonkeyPatch) -> tuple[Arrays, Arrays]:
    """Bytes without a header: each image red, green, blue, column by column; labels from 1."""
    cls, folder, whole = Stl10.theirs, root / "stl10_binary", []
    folder.mkdir(parents=True)
    for seed, split in enumerate(("train", "test")):
        images, labels = miniature((3, 96, 96), 10, 20, seed)
        (folder / f"{split}_X.bin").write_bytes(images.transpose(0, 1, 3, 2).tobytes())
        (folder / f"{split}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())
        listed = [[f"{split}_{part}.bin", md5(folder / f"{split}_{part}.bin")] for part in "Xy"]
        patch.setattr(cls, f"{split}_list", listed)
        whole.append((images, labels))
    (folder / "unlabeled_X.bin").write_bytes(b"gigabytes")
    patch.setattr(cls, "url", (internet / cls.filename).as_uri())
    patch.setattr(cls, "tgz_md5", pack(root, "stl10_binary", internet / cls.filename))
    return whole[0], whole[1]


WRITERS = {
    "cifar10": write_cifar(datasets.CIFAR10, "labels", 10),
    "cifar100": write_cifar(datasets.CIFAR100, "fine_labels", 100),
    "mnist": write_mnist(datasets.MNIST),
    "fashion_mnist": write_mnist(datasets.FashionMNIST),
    "kmnist": write_mnist(datasets.KMNIST),
    "svhn": write_svhn,
    "stl10": write_stl10,
}
