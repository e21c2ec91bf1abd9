"""Images in parquet files as on data hubs: a row has an encoded image and its label or mask.

A file with a column of split names, or a folder with one file per split (`train.parquet`) or its
shards (`train-00000-of-00002.parquet`).
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainables.data.shared.columns import check_column, opened_parquet, what_is_taken
from trainables.data.shared.images import (
    SIZE,
    SMALL_BYTES,
    Size,
    check_memory,
    check_size,
    decode,
    shape_of,
)
from trainables.data.shared.listing import Content, Labels, Listing
from trainables.data.shared.masks import (
    CLASSES_DOC,
    VOID,
    VOID_DOC,
    Legend,
    Void,
    as_labels,
    decode_mask,
)
from trainables.data.shared.orientation import UPRIGHT, digest_with, orientation_of
from trainables.data.shared.rows import RowFiles
from trainables.dataset import Progress, nothing
from trainables.fields import number, path_text, setting
from trainables.machine import memory
from trainables.problems import FieldError

SLICE = 256  # images a thread decodes at a time

T = TypeVar("T")


class Chunk(NamedTuple):
    """Some images, decoded. start: the place of the first among all that are wanted."""

    start: int
    images: np.ndarray  # uint8 [n, H, W, C]; C is 3 if any has colour, else 1
    masks: np.ndarray | None  # uint8 [n, H, W], the values


@dataclass(frozen=True, kw_only=True)
class Parquet(RowFiles):
    """Grayscale images keep one channel; if any image has colour, all become RGB.

    Without `splits`, splits named train, validation (valid, val, dev) and test are used; with only
    train and validation, the latter becomes the sealed test split. With `splits`, other splits are
    ignored.
    """

    picks: ClassVar[str] = "the image"

    image: str = setting(
        "image", doc="column of encoded images, or of structs with them in `bytes`"
    )
    mask: str | None = setting(
        None, doc="column of masks, PNGs with a class for each pixel, in place of `label`"
    )
    void: Void = setting(VOID, doc=VOID_DOC)
    classes: str | list[str] | None = path_text(None, doc=CLASSES_DOC)
    size: Size = number(None, low=1, doc=SIZE)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size(self.size)
        Legend.check(self.void, self.classes)
        if self.mask is None:
            for option in ("void", "classes"):
                if getattr(self, option) != self.field_named(option).default:
                    raise FieldError(option, "is of masks", "Name their column, `mask: COLUMN`.")
            return
        if self.label != self.field_named("label").default:
            found = f"'{self.label}' is given together with mask '{self.mask}'"
            raise FieldError("label", found, "An image has a label or a mask: remove one.")
        for option in ("image", "split_column", "group"):
            if self.mask == getattr(self, option):
                found = f"'{self.mask}' is the {option.removesuffix('_column')}"
                raise FieldError("mask", found, "Name another column.")

    @property
    def _picked(self) -> str:
        return self.image

    @property
    def _label(self) -> str | None:
        return self.label if self.mask is None else None

    @property
    def _legend(self) -> Legend:
        return Legend.of(self.void, self.classes)

    @property
    def _further(self) -> dict[str, Any]:
        found = {} if self.size is None else {"size": self.size}
        return found if self.mask is None else {**found, "mask": self.mask, "legend": self._legend}

    def source_digest(self) -> str:
        return digest_with(self.unturned_digest(), self._orientations())

    def unturned_digest(self) -> str:
        return super().source_digest()

    def _orientations(self) -> list[str]:
        """A line for each image or mask that is turned."""
        found = []
        for place, file in enumerate(self._files()):
            fields = [one for one in self._schema(file) if one.name in (self.image, self.mask)]
            columns = [one.name for one in fields if _may_be_images(one.type)]
            for name in columns:
                cells = chain.from_iterable(
                    _encoded(batch.column(name)) for batch in self._batches(file, [name], SLICE)
                )
                for row, value in enumerate(cells):
                    if (orientation := orientation_of(value)) != UPRIGHT:
                        found.append(f"{place} {name} {row} {orientation}")
        return found

    def _opened(self, file: Path) -> AbstractContextManager[Any]:
        return opened_parquet(file, memory())

    def _schema(self, file: Path) -> Any:
        with self._opened(file) as source:
            return source.schema_arrow

    def _read(self, file: Path, columns: list[str]) -> Any:
        with self._opened(file) as source:
            return source.read(columns)

    def _batches(self, file: Path, columns: list[str], size: int) -> Iterator[Any]:
        with self._opened(file) as source:
            yield from source.iter_batches(size, columns=columns)

    def _described(
        self, listing: Listing, rows: np.ndarray
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        return self._first_shape(listing, rows), ()

    def _first_shape(self, listing: Listing, rows: np.ndarray) -> tuple[int, int, int]:
        """[C, H, W] of the first of these images, from its header."""
        with closing(self._parts(listing, rows[:1], [self.image], SLICE)) as parts:
            encoded = _encoded(next(parts)[2].column(self.image))[0]
        return self._of_cell(
            listing, rows[0], "image", encoded, lambda value: shape_of(value, self.size)
        )

    def _labels_in(self, file: Path, columns: Any) -> Any:
        if self.mask is None:
            return super()._labels_in(file, columns)
        return pa.array(np.zeros(columns.num_rows, dtype=np.int64))

    def _numbered(self, schemas: dict[Path, Any], columns: list[Any], splits: np.ndarray) -> Labels:
        if self.mask is None:
            return super()._numbered(schemas, columns, splits)
        names = self._legend.names
        return Labels(np.zeros(len(splits), dtype=np.int64), None if names is None else list(names))

    def _check_schema(self, file: Path, schema: Any) -> None:
        if self.image not in schema.names and not any(map(_may_be_images, schema.types)):
            found = f"{file} has no column of images"
            raise FieldError("image", found, "For rows of numbers write `name: table`.")
        check_column("image", file, self.image, schema.names)
        super()._check_schema(file, schema)
        _check_encoded("image", file, self.image, schema)
        if self.mask is not None:
            check_column("mask", file, self.mask, schema.names)
            _check_encoded("mask", file, self.mask, schema)
            return
        kind = schema.field(self.label).type
        if not pa.types.is_integer(kind):
            fix = "Number the classes from 0."
            if others := [field.name for field in schema if pa.types.is_integer(field.type)]:
                fix = f"Integer columns: {', '.join(others)}."
            found = f"{file}: column '{self.label}' has type {kind}"
            raise FieldError(
                "label", f"{found}, not integers", f"{fix} {what_is_taken(kind)}".strip()
            )

    def _content(
        self, listing: Listing, rows: dict[str, np.ndarray], progress: Progress = nothing
    ) -> Content:
        """For each split uint8 [N, C, H, W], in row order, or [N, C + 1, H, W] with masks. Raises
        FieldError."""
        wanted = np.concatenate(list(rows.values()))
        order = np.argsort(wanted)
        images = self._decoded_all(listing, wanted, order, progress)
        ends = np.cumsum([len(taken) for taken in rows.values()])
        arrays = dict(zip(rows, np.split(images, ends[:-1]), strict=True))
        if self.mask is None:
            return Content(arrays)
        masks = {name: found[:, -1] for name, found in arrays.items()}
        classes = as_labels(masks, self._legend, lambda name, i: listing.place(rows[name][i]))
        return Content(arrays, classes=classes)

    def _decoded_all(
        self, listing: Listing, wanted: np.ndarray, order: np.ndarray, progress: Progress
    ) -> np.ndarray:
        """The images of the rows `wanted`, with their masks. order: that of these rows in the
        files."""
        channels, height, width = self._first_shape(listing, wanted[order])
        masks = 0 if self.mask is None else 1
        check_memory(len(wanted), (channels + masks, height, width))
        chunks: list[Chunk] = []
        # A small image takes longer in Python than in the decoder: threads would only wait for each
        # other.
        small = sum(file.stat().st_size for file in listing.files) < SMALL_BYTES * len(
            listing.labels
        )
        columns = [self.image] if self.mask is None else [self.image, self.mask]
        with ThreadPoolExecutor(1 if small else None) as pool:
            parts = self._parts(listing, wanted[order], columns, SLICE)
            for chunk in pool.map(lambda part: self._decoded(listing, *part), parts):
                if chunks and chunk.images.shape[1:3] != chunks[0].images.shape[1:3]:
                    row, other = wanted[order[[chunk.start, 0]]]
                    self._refuse_sizes(listing, row, chunk.images[0], other, chunks[0].images[0])
                chunks.append(chunk)
                progress(chunk.start + len(chunk.images), len(wanted))
        channels = max(chunk.images.shape[3] for chunk in chunks)
        shape = chunks[0].images.shape[1:3]
        images = np.empty((len(wanted), channels + masks, *shape), dtype=np.uint8)
        while chunks:
            chunk = chunks.pop()
            places = order[chunk.start : chunk.start + len(chunk.images)]
            # Grayscale broadcasts to three channels if others have colour.
            images[places, :channels] = chunk.images.transpose(0, 3, 1, 2)
            if chunk.masks is not None:
                images[places, channels] = chunk.masks
        return images

    def _decoded(self, listing: Listing, start: int, rows: np.ndarray, batch: Any) -> Chunk:
        images: list[np.ndarray] = []
        encoded = _encoded(batch.column(self.image))
        for row, value in zip(rows, encoded, strict=True):
            images.append(
                self._of_cell(listing, row, "image", value, lambda one: decode(one, self.size))
            )
            if images[-1].shape[:2] != images[0].shape[:2]:
                self._refuse_sizes(listing, row, images[-1], rows[0], images[0])
        channels = max(image.shape[2] for image in images)
        shape = (*images[0].shape[:2], channels)
        stacked = np.stack([np.broadcast_to(image, shape) for image in images])
        if self.mask is None:
            return Chunk(start, stacked, None)
        cells = zip(rows, encoded, _encoded(batch.column(self.mask)), strict=True)
        return Chunk(start, stacked, np.stack([self._mask(listing, *cell) for cell in cells]))

    def _mask(self, listing: Listing, row: int, image: bytes, mask: Any) -> np.ndarray:
        """[H, W], the values. Raises FieldError."""
        shape = shape_of(image)[1:]
        return self._of_cell(
            listing, row, "mask", mask, lambda value: decode_mask(value, shape, self.size)
        )

    def _of_cell(
        self, listing: Listing, row: int, what: str, value: Any, function: Callable[[bytes], T]
    ) -> T:
        """The function's result for an encoded image or mask."""
        try:
            return function(value)
        except FieldError as error:
            raise FieldError(what, f"{listing.place(row)}: {error.found}", error.mend) from None
        # Decoders raise anything on bad bytes.
        except Exception as error:
            found = "is missing" if value is None else f"cannot be decoded ({error})"
            raise FieldError(
                what, f"{listing.place(row)}: the {what} {found}", "Fix or remove the row."
            ) from None

    def _refuse_sizes(
        self, listing: Listing, row: int, image: np.ndarray, other_row: int, other: np.ndarray
    ) -> None:
        found = f"{listing.place(row)}: the image is {image.shape[1]}x{image.shape[0]} pixels"
        there = f"the one in {listing.place(other_row)} is {other.shape[1]}x{other.shape[0]}"
        sides = list(other.shape[:2])
        size = sides[0] if sides[0] == sides[1] else sides
        mend = f"Set the size to cut and resize all to, e.g. `size: {size}`."
        raise FieldError("image", f"{found}, {there}", mend)


def _check_encoded(option: str, file: Path, column: str, schema: Any) -> None:
    """Raise FieldError unless the column may hold encoded images."""
    kind = schema.field(column).type
    if _may_be_images(kind):
        return
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    found = f"{file}: column '{column}' has type {kind}, not encoded {option}s (e.g. PNG)"
    raise FieldError(option, found, what_is_taken(kind) if option == "mask" else "")


def _encoded(column: Any) -> list[Any]:
    """The encoded images of a column; None where one is missing."""
    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
    encoded: list[Any] = column.to_pylist()
    return encoded


def _may_be_images(kind: Any) -> bool:
    """Whether a column of this type may hold encoded images: bytes, or structs with them."""
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
