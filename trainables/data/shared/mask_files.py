"""Shared base of data sets whose samples are files of images, each with a file of its mask."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trainables.data.shared.groups import numbered_parts
from trainables.data.shared.images import (
    SIZE,
    Size,
    check_alike,
    check_memory,
    check_size,
    contents_of,
    decode,
    of_each,
    of_file,
    rows_of,
    shape_of,
)
from trainables.data.shared.masks import Legend, as_labels, decode_mask
from trainables.data.shared.orientation import digest_with
from trainables.data.shared.splits import limit_notes, limited
from trainables.dataset import Dataset, Header, Progress, RawData, RawSplit, Rows, Samples, nothing
from trainables.fields import number, path_text
from trainables.files.data_files import bytes_of
from trainables.plain import Value
from trainables.problems import FieldError


class MaskList(NamedTuple):
    """The samples of a split. groups: [N] text, if there are."""

    images: list[Path]
    masks: list[Path]
    groups: np.ndarray | None = None

    def at(self, rows: np.ndarray) -> "MaskList":
        groups = None if self.groups is None else self.groups[rows]
        return MaskList(
            [self.images[row] for row in rows], [self.masks[row] for row in rows], groups
        )


@dataclass(frozen=True, kw_only=True)
class MaskFiles(Dataset, ABC):
    """Image files and PNG files of masks. Grayscale keeps one channel; if any image has colour, all
    become RGB."""

    path: str = path_text(doc="folder with the images and masks")
    size: Size = number(None, low=1, doc=SIZE)
    limit: int | None = number(None, low=1, doc="maximum images per split")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size(self.size)

    @abstractmethod
    def lists(self) -> dict[str, MaskList]:
        """The samples of train and of the source's other splits. Opens no image.

        Raises FieldError if the folder has another layout.
        """

    @property
    @abstractmethod
    def legend(self) -> Legend:
        """What the values of its masks mean. Raises FieldError."""

    def notes(self) -> tuple[str, ...]:
        """What `plan` says of the lists."""
        return ()

    def source_digest(self) -> str:
        return digest_with(*self._digests())

    def unturned_digest(self) -> str:
        return self._digests()[0]

    def _digests(self) -> tuple[str, list[str]]:
        """That of the files as stored, and the orientations of those that are turned."""
        digest = hashlib.sha256(json.dumps([self.size, self.legend]).encode())
        orientations = []
        for name, listed in self._taken().items():
            for files in (listed.images, listed.masks):
                for file, found in zip(files, of_each(files, contents_of), strict=True):
                    place = Path(os.path.relpath(file, self.path)).as_posix()
                    digest.update(f"{name} {place} {found.digest}\n".encode())
                    orientations += found.turned(place)
        return digest.hexdigest(), orientations

    def read(self, progress: Progress = nothing) -> RawData:
        lists = self._taken()
        arrays, classes = self._decoded(lists, progress)
        groups, names = numbered_parts({name: one.groups for name, one in lists.items()})
        splits = {
            name: RawSplit(images, np.zeros(len(images), dtype=np.int64), groups.get(name))
            for name, images in arrays.items()
        }
        notes = (*self.notes(), *self._limit_notes(lists))
        raw = RawData.of(classes, splits)
        return replace(raw, notes=notes, group_names=names, marked=True)

    def source_rows(self) -> Rows:
        return rows_of(_joined(self._taken().values()).images)

    def samples(self, where: dict[str, Value] | None = None) -> Samples:
        """Those of test if there are, else all; classes may be absent."""
        self._refuse_where(where)
        whole = self._sampled()
        arrays, _ = self._decoded({"all": whole})
        groups, names = numbered_parts({"all": whole.groups})
        labels = np.zeros(len(whole.images), dtype=np.int64)
        classes = dict(enumerate(self.legend.names or ()))
        return Samples(arrays["all"], labels, classes, (), groups.get("all"), names, marked=True)

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        self._refuse_where(where)
        images = self._sampled().images
        shape = of_file(images[0], shape_of, self.size)
        names = dict(enumerate(self.legend.names or ()))
        return Header(rows_of(images), shape, None, names, marked=True)

    def _sampled(self) -> MaskList:
        """Test if there is one, else all."""
        taken = self._taken()
        return taken["test"] if "test" in taken else _joined(taken.values())

    def _taken(self) -> dict[str, MaskList]:
        taken = {}
        for name, listed in self.lists().items():
            labels = np.zeros(len(listed.images), dtype=np.int64)
            taken[name] = listed.at(limited(labels, self.limit, name, 1, listed.groups))
        return taken

    def _limit_notes(self, lists: Mapping[str, MaskList]) -> tuple[str, ...]:
        if self.limit is None or self.unit is None:
            return ()
        before = {name: listed.groups for name, listed in self.lists().items()}
        rows = {name: listed.images for name, listed in lists.items()}
        return limit_notes(self.limit, before, rows, self.unit)

    def _decoded(
        self, lists: Mapping[str, MaskList], progress: Progress = nothing
    ) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
        """For each split uint8 [N, C + 1, H, W], and the classes."""
        joined = _joined(lists.values())
        masks_of = dict(zip(joined.images, joined.masks, strict=True))
        whole = read_pairs(masks_of, self.size, progress)
        ends = np.cumsum([len(listed.images) for listed in lists.values()])
        arrays = dict(zip(lists, np.split(whole, ends[:-1]), strict=True))
        masks = {name: images[:, -1] for name, images in arrays.items()}
        try:
            classes = as_labels(masks, self.legend, lambda name, i: str(lists[name].masks[i]))
        except FieldError as error:
            raise error if error.path != "mask" else error.at("path") from None
        return arrays, classes


def _joined(lists: Iterable[MaskList]) -> MaskList:
    parts = list(lists)
    groups = [one.groups for one in parts if one.groups is not None]
    return MaskList(
        list(chain.from_iterable(one.images for one in parts)),
        list(chain.from_iterable(one.masks for one in parts)),
        np.concatenate(groups) if groups else None,
    )


def read_pairs(masks: Mapping[Path, Path], size: Size, progress: Progress = nothing) -> np.ndarray:
    """uint8 [N, C + 1, H, W], in order: each image, and the values of its mask.

    masks: the mask of each image. Raises FieldError.
    """
    files = list(masks)
    first = of_file(files[0], shape_of, size)
    check_memory(len(files), (first[0] + 1, *first[1:]))

    def pair(file: Path) -> tuple[np.ndarray, np.ndarray]:
        image, shape = of_file(file, _with_shape, size)
        check_alike(file, image.shape[:2], files[0], first[1:])
        return image, _mask(masks[file], shape, size)

    decoded = of_each(files, pair, progress)
    channels = max(image.shape[2] for image, _ in decoded)
    whole = np.empty((len(files), channels + 1, *first[1:]), dtype=np.uint8)
    while decoded:
        # From the end, freeing each after the copy: memory holds them once.
        image, mask = decoded.pop()
        whole[len(decoded), :channels] = image.transpose(2, 0, 1)
        whole[len(decoded), channels] = mask
    return whole


def _with_shape(encoded: bytes, size: Size) -> tuple[np.ndarray, tuple[int, int]]:
    """The image, and (height, width) before it was resized."""
    return decode(encoded, size), shape_of(encoded)[1:]


def _mask(file: Path, shape: tuple[int, int], size: Size) -> np.ndarray:
    """[H, W], the values. shape: (height, width) of the image."""
    encoded = bytes_of("path", file)
    try:
        return decode_mask(encoded, shape, size)
    except FieldError as error:
        raise FieldError("path", f"{file}: {error.found}", error.mend) from None
    # Decoders raise anything on bad bytes.
    except Exception as error:
        found = f"{file}: the mask cannot be decoded ({error})"
        raise FieldError("path", found, "Fix or remove it.") from None
