"""Decode images; shared base of data sets whose samples are image files in folders."""

import hashlib
import io
import json
import math
import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from trainables.data.shared.groups import numbered_parts
from trainables.data.shared.orientation import (
    UPRIGHT,
    digest_with,
    orientation_in,
    orientation_of,
    turned,
    upright_size,
)
from trainables.data.shared.splits import limit_notes, limited
from trainables.dataset import Dataset, Header, Progress, RawData, RawSplit, Rows, nothing
from trainables.fields import number, path_text
from trainables.files.data_files import bytes_of
from trainables.machine import memory
from trainables.plain import Value
from trainables.problems import FieldError

SLICE = 256  # files a thread reads at a time
GRAYSCALE = ("1", "L", "LA", "La")  # Pillow's modes
MOST_PIXELS = 80_000_000  # of an image: 240 MB once decoded. A few kB may claim to be any size.
DEEP = re.compile(r"\w+;16[BLN]")  # Pillow's raw modes of 16 bits; `BGR;16` is of 5 and 6
SIZE = "side in pixels, or [height, width]: center crop and resize; null: all have the same size"
SMALL_BYTES = 4096  # of an encoded image; a JPEG of about 200x200, where more threads begin to pay

T = TypeVar("T")
Size = int | list[int] | None  # a side, or [height, width]

# Above our limit, at which we refuse.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def check_size(size: Size) -> None:
    """Raise FieldError unless a list is [height, width]."""
    if isinstance(size, list) and not (
        len(size) == 2 and all(type(side) is int and side > 0 for side in size)
    ):
        raise FieldError("size", f"must be a side, or [height, width], in pixels, got {size}")


def sides(size: int | list[int]) -> tuple[int, int]:
    """(height, width)."""
    height, width = size if isinstance(size, list) else (size, size)
    return height, width


def decode(encoded: bytes, size: Size = None) -> np.ndarray:
    """[H, W, 1] for a grayscale image, [H, W, 3] for any other, uint8. Transparency is dropped.

    It is turned by its EXIF orientation. size: then cut from the center what has its shape, and
    resize that; None: unchanged. Raises FieldError for more than 8 bits per channel, and decoder
    errors.
    """
    image = opened(encoded)
    _check_depth(image)
    return _pixels(turned(image, orientation_of(encoded)), size)


def pixels_of(image: Image.Image) -> np.ndarray:
    """`decode` of an image that is opened."""
    _check_depth(image)
    image.load()
    return _pixels(turned(image, orientation_in(image)))


def _pixels(image: Image.Image, size: Size = None) -> np.ndarray:
    image.load()
    mode = "L" if image.mode in GRAYSCALE else "RGB"
    if image.mode != mode:
        image = image.convert(mode)
    if size is not None and image.size != (wanted := sides(size)[::-1]):
        image = ImageOps.fit(image, wanted, Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)


def shape_of(encoded: bytes, size: Size = None) -> tuple[int, int, int]:
    """[C, H, W] of the image once decoded, from its header alone. Raises as `decode`."""
    image = opened(encoded)
    _check_depth(image)
    height, width = upright_size(image, orientation_of(encoded)) if size is None else sides(size)
    channels = 1 if image.mode in GRAYSCALE else 3
    return channels, height, width


def opened(encoded: bytes) -> Image.Image:
    """The image, with its pixels not yet decoded."""
    try:
        image: Image.Image = Image.open(io.BytesIO(encoded))
        pixels = math.prod(image.size)
    except UnidentifiedImageError:  # its text is the address of our buffer
        raise ValueError("not an image, or in an unknown format") from None
    except Image.DecompressionBombError as error:  # Pillow's own limit is above ours
        pixels = int(re.findall(r"\d+", str(error))[0])
    if pixels > MOST_PIXELS:
        raise ValueError(f"it has {pixels:,} pixels, the limit is {MOST_PIXELS:,}")
    return image


def _check_depth(image: Image.Image) -> None:
    """Raise FieldError for more than 8 bits per channel. image: with its pixels not decoded."""
    for deep in _deep(image):
        said = f"the image has more than 8 bits per channel ({deep})"
        raise FieldError("image", said, "Save it with 8 bits per channel.")


def _deep(image: Image.Image) -> Iterator[str]:
    """What says that it has more than 8 bits per channel."""
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        yield f"mode {image.mode}"
    # The mode of colours does not: Pillow drops their low byte as it decodes them.
    for codec, _, _, arguments in getattr(image, "tile", ()):
        *_, last = arguments if isinstance(arguments, tuple) else (arguments,)
        if codec.startswith("ppm") and isinstance(last, int) and last > 255:
            yield f"values up to {last:,}"
        if mode := DEEP.search(str(arguments)):
            yield f"mode {mode[0]}"


class ImageList(NamedTuple):
    """The samples of a split. files: N paths. labels: [N] int64. groups: [N] text, if there are."""

    files: list[Path]
    labels: np.ndarray
    groups: np.ndarray | None = None

    def at(self, rows: np.ndarray) -> "ImageList":
        groups = None if self.groups is None else self.groups[rows]
        return ImageList([self.files[row] for row in rows], self.labels[rows], groups)


@dataclass(frozen=True, kw_only=True)
class ImageFiles(Dataset, ABC):
    """Image files in folders. Grayscale keeps one channel; if any has colour, all become RGB."""

    path: str = path_text(doc="folder with the images")
    size: Size = number(None, low=1, doc=SIZE)
    limit: int | None = number(None, low=1, doc="maximum images per split, stratified by label")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size(self.size)

    @abstractmethod
    def lists(self) -> tuple[tuple[str, ...], dict[str, ImageList]]:
        """Class names, and the samples of train and of the source's other splits. Opens no image.

        Raises FieldError if the folder has another layout, or a split lacks a class it needs.
        """

    def source_digest(self) -> str:
        return digest_with(*self._digests())

    def unturned_digest(self) -> str:
        return self._digests()[0]

    def _digests(self) -> tuple[str, list[str]]:
        """That of the files as stored, and the orientations of those that are turned."""
        classes, lists = self._taken()
        digest = hashlib.sha256(json.dumps([self.size, classes]).encode())
        orientations = []
        for name, (files, labels, _) in lists.items():
            for file, label, found in zip(files, labels, of_each(files, contents_of), strict=True):
                place = os.path.relpath(file, self.path)
                digest.update(f"{name} {label} {place} {found.digest}\n".encode())
                orientations += found.turned(place)
        return digest.hexdigest(), orientations

    def read(self, progress: Progress = nothing) -> RawData:
        classes, lists = self._taken()
        images = read_images(_files(lists.values()), self.size, progress)
        ends = np.cumsum([len(listed.files) for listed in lists.values()])
        parts = zip(lists, np.split(images, ends[:-1]), strict=True)
        found, names = numbered_parts({name: listed.groups for name, listed in lists.items()})
        splits = {name: RawSplit(part, lists[name].labels, found.get(name)) for name, part in parts}
        raw = RawData.of(classes, splits)
        return replace(raw, notes=self._limit_notes(lists), group_names=names)

    def source_rows(self) -> Rows:
        return rows_of(_files(self._taken()[1].values()))

    def samples_header(self, where: dict[str, Value] | None = None) -> Header:
        self._refuse_where(where)
        classes, lists = self._taken()
        parts = [lists["test"]] if "test" in lists else list(lists.values())
        files = _files(parts)
        shape = of_file(files[0], shape_of, self.size)
        labels = np.concatenate([part.labels for part in parts])
        return Header(rows_of(files), shape, labels, dict(enumerate(classes)))

    def _taken(self) -> tuple[tuple[str, ...], dict[str, ImageList]]:
        classes, lists = self.lists()
        taken = {}
        for name, listed in lists.items():
            rows = limited(listed.labels, self.limit, name, len(classes), listed.groups)
            taken[name] = listed.at(rows)
        return classes, taken

    def _limit_notes(self, lists: dict[str, ImageList]) -> tuple[str, ...]:
        if self.limit is None or self.unit is None:
            return ()
        before = {name: listed.groups for name, listed in self.lists()[1].items()}
        rows = {name: listed.files for name, listed in lists.items()}
        return limit_notes(self.limit, before, rows, self.unit)


def _files(lists: Iterable[ImageList]) -> list[Path]:
    return list(chain.from_iterable(listed.files for listed in lists))


def check_lists(path: str, classes: Sequence[str], lists: dict[str, ImageList]) -> None:
    """Raise FieldError unless there are at least two classes and train has an image of each."""
    if len(classes) < 2:
        found = f"only the class '{classes[0]}'" if classes else "no classes"
        raise FieldError("path", f"the train split of {path} has {found}; at least two are needed")
    counts = np.bincount(lists["train"].labels, minlength=len(classes))
    if not counts.all():
        found = f"class '{classes[int(counts.argmin())]}' has no training image in {path}"
        raise FieldError("path", found, "Add some, or remove the class.")
    for name, listed in lists.items():
        if not listed.files:
            raise FieldError("path", f"the {name} split of {path} has no images")


def required(path: str, name: str) -> Path:
    """`name` under `path`. Raises FieldError, suggesting a subfolder that has it."""
    if not Path(path).is_dir():
        fix = "Give the folder of the unpacked archive."
        raise FieldError("path", f"there is no folder {path}", fix)
    found = Path(path) / name
    if not found.exists():
        below = sorted(Path(path).glob(f"*/{name}"))
        hint = f"Did you mean {below[0].parents[name.count('/')]}?" if below else ""
        raise FieldError("path", f"there is no {name} in {path}", hint)
    return found


def check_memory(count: int, shape: tuple[int, int, int]) -> None:
    """Raise FieldError if that many images [C, H, W] do not fit into this machine's memory."""
    needed = count * math.prod(shape)
    if needed > memory():
        found = f"{count:,} images of {shape[2]}x{shape[1]} pixels take {needed / 1e9:,.0f} GB"
        limit = f"once decoded, this machine's memory has {memory() / 1e9:,.0f} GB"
        raise FieldError("path", f"{found} {limit}", "Set `limit`, or use smaller images.")


def read_images(files: Sequence[Path], size: Size, progress: Progress = nothing) -> np.ndarray:
    """uint8 [N, C, H, W], in order. Raises FieldError: no image, or other sizes without `size`."""
    first = of_file(files[0], shape_of, size)
    check_memory(len(files), first)

    def of_first_size(file: Path) -> np.ndarray:
        image = of_file(file, decode, size)
        check_alike(file, image.shape[:2], files[0], first[1:])
        return image

    decoded = of_each(files, of_first_size, progress)
    channels = max(image.shape[2] for image in decoded)
    images = np.empty((len(files), channels, *first[1:]), dtype=np.uint8)
    while decoded:
        # From the end, freeing each after the copy: memory holds them once. Grayscale broadcasts
        # to three channels if others have colour.
        image = decoded.pop()
        images[len(decoded)] = image.transpose(2, 0, 1)
    return images


def check_alike(file: Path, shape: tuple[int, ...], other: Path, wanted: tuple[int, ...]) -> None:
    """Raise FieldError unless two images have one (height, width)."""
    if shape != wanted:
        shapes = [f"{width}x{height}" for height, width in (shape, wanted)]
        problem = f"{file} is {shapes[0]} pixels, {other} is {shapes[1]}"
        size = wanted[0] if wanted[0] == wanted[1] else list(wanted)
        fix = f"Set the size to cut and resize to, e.g. `size: {size}`."
        raise FieldError("size", problem, fix)


def of_file(file: Path, function: Callable[[bytes, Size], T], size: Size) -> T:
    """The function's result for the file's bytes."""
    encoded = bytes_of("path", file)
    try:
        return function(encoded, size)
    except FieldError as error:
        raise FieldError("path", f"{file}: {error.found}", error.mend) from None
    # Decoders raise anything on bad bytes.
    except Exception as error:
        raise FieldError(
            "path", f"{file}: the image cannot be decoded ({error})", "Fix or remove it."
        ) from None


def of_each(
    files: Sequence[Path], function: Callable[[Path], T], progress: Progress = nothing
) -> list[T]:
    """The function's result for each file, in order."""
    slices = [files[start : start + SLICE] for start in range(0, len(files), SLICE)]
    # A small image takes longer in Python than in the decoder: threads would only wait for each
    # other.
    small = sum(file.stat().st_size for file in slices[0]) < SMALL_BYTES * len(slices[0])
    with ThreadPoolExecutor(1 if small else None) as pool:
        values: list[T] = []
        for part in pool.map(lambda part: [function(file) for file in part], slices):
            values += part
            progress(len(values), len(files))
        return values


def rows_of(files: Sequence[Path]) -> Rows:
    """Each file is a row, whatever its name."""
    return {digest: np.zeros(1, dtype=np.int64) for digest in of_each(files, digest_of)}


class Contents(NamedTuple):
    """Of a file: sha256 of its bytes, and the orientation of its image."""

    digest: str
    orientation: int

    def turned(self, place: str) -> list[str]:
        """A line of the digest of the source, if the image is turned."""
        return [] if self.orientation == UPRIGHT else [f"{place} {self.orientation}"]


def contents_of(file: Path) -> Contents:
    encoded = bytes_of("path", file)
    return Contents(hashlib.sha256(encoded).hexdigest(), orientation_of(encoded))


def digest_of(file: Path) -> str:
    """sha256 of the file's bytes."""
    return hashlib.sha256(bytes_of("path", file)).hexdigest()
