"""What a data set imported from modules that have moved since, by their former names."""
# ruff: noqa: F401, I001

from dataclasses import dataclass

import numpy as np

from trainables.disk import append, write_whole
from trainables.download import DownloadError, download, file_digest
from trainables.images import ImageFiles, ImageList, check_lists, decode, read_images, required
from trainables.prepared import data_digest, default_cache, load_split, prepare, ranks_in_class
from trainables.splits import check_splits, limited, split_names
from trainables.torchvision_data import CifarData, MnistData, Published, TorchvisionData


@dataclass(frozen=True, kw_only=True)
class ListedFormerly(ImageFiles):
    """PATH/dark_*.png and PATH/bright_*.png."""

    def lists(self) -> tuple[tuple[str, ...], dict[str, ImageList]]:
        files = sorted(required(self.path, ".").glob("*.png"))
        labels = np.array([file.name.startswith("bright") for file in files], np.int64)
        lists = {"train": ImageList(files, labels)}
        check_lists(self.path, ("dark", "bright"), lists)
        return ("dark", "bright"), lists
