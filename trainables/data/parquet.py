"""Images in parquet files as on data hubs: one row per sample, an encoded image and its label.

A file with a column of split names, or a folder with one file per split (`train.parquet`) or its
shards (`train-00000-of-00002.parquet`).
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainables.data.shared.columns import check_column, opened_parquet
from trainables.data.shared.images import SMALL_BYTES, check_memory, decode, shape_of
from trainables.data.shared.rows import Content, Listing, RowFiles
from trainables.dataset import Progress, nothing
from trainables.fields import text
from trainables.machine import memory
from trainables.problems import FieldError

SLICE = 256  # images a thread decodes at a time

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Parquet(RowFiles):
    """Grayscale images keep one channel; if any image has colour, all become RGB.

    Without `splits`, splits named train, validation (valid, val, dev) and test are used; with only
    train and validation, the latter becomes the sealed test split. With `splits`, other splits are
    ignored.
    """

    picks: ClassVar[str] = "the image"

    image: str = text("image", doc="column of encoded images, or of structs with them in `bytes`")

    @property
    def _picked(self) -> str:
        return self.image

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
            encoded = _encoded(next(parts)[2])[0]
        return self._of_image(listing, rows[0], encoded, shape_of)

    def _check_schema(self, file: Path, schema: Any) -> None:
        if self.image not in schema.names and not any(map(_may_be_images, schema.types)):
            found = f"{file} has no column of images"
            raise FieldError("image", found, "For rows of numbers write `name: table`.")
        check_column("image", file, self.image, schema.names)
        super()._check_schema(file, schema)
        kind = schema.field(self.image).type
        if not _may_be_images(kind):
            if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
                kind = kind.field("bytes").type
            found = f"{file}: column '{self.image}' has type {kind}"
            raise FieldError("image", f"{found}, not encoded images (e.g. PNG)")
        kind = schema.field(self.label).type
        if not pa.types.is_integer(kind):
            fix = "Number the classes from 0."
            if others := [field.name for field in schema if pa.types.is_integer(field.type)]:
                fix = f"Integer columns: {', '.join(others)}."
            found = f"{file}: column '{self.label}' has type {kind}"
            raise FieldError("label", f"{found}, not integers", fix)

    def _content(
        self, listing: Listing, rows: dict[str, np.ndarray], progress: Progress = nothing
    ) -> Content:
        """For each split uint8 [N, C, H, W], in row order. Raises FieldError."""
        wanted = np.concatenate(list(rows.values()))
        order = np.argsort(wanted)
        check_memory(len(wanted), self._first_shape(listing, wanted[order]))
        chunks: list[tuple[int, np.ndarray]] = []
        # A small image takes longer in Python than in the decoder: threads would only wait for each
        # other.
        small = sum(file.stat().st_size for file in listing.files) < SMALL_BYTES * len(
            listing.labels
        )
        with ThreadPoolExecutor(1 if small else None) as pool:
            parts = self._parts(listing, wanted[order], [self.image], SLICE)
            for start, chunk in pool.map(lambda part: self._decoded(listing, *part), parts):
                if chunks and chunk.shape[1:3] != chunks[0][1].shape[1:3]:
                    self._refuse_sizes(
                        listing, wanted[order[start]], chunk[0], wanted[order[0]], chunks[0][1][0]
                    )
                chunks.append((start, chunk))
                progress(start + len(chunk), len(wanted))
        channels = max(chunk.shape[3] for _, chunk in chunks)
        images = np.empty((len(wanted), channels, *chunks[0][1].shape[1:3]), dtype=np.uint8)
        while chunks:
            start, chunk = chunks.pop()
            # Grayscale broadcasts to three channels if others have colour.
            images[order[start : start + len(chunk)]] = chunk.transpose(0, 3, 1, 2)
        ends = np.cumsum([len(taken) for taken in rows.values()])
        return Content(dict(zip(rows, np.split(images, ends[:-1]), strict=True)))

    def _decoded(
        self, listing: Listing, start: int, rows: np.ndarray, batch: Any
    ) -> tuple[int, np.ndarray]:
        """start, and the images [n, H, W, C] uint8; C is 3 if any has colour, else 1."""
        images: list[np.ndarray] = []
        for row, value in zip(rows, _encoded(batch), strict=True):
            images.append(self._of_image(listing, row, value, decode))
            if images[-1].shape[:2] != images[0].shape[:2]:
                self._refuse_sizes(listing, row, images[-1], rows[0], images[0])
        channels = max(image.shape[2] for image in images)
        shape = (*images[0].shape[:2], channels)
        return start, np.stack([np.broadcast_to(image, shape) for image in images])

    def _of_image(
        self, listing: Listing, row: int, value: Any, function: Callable[[bytes], T]
    ) -> T:
        """The function's result for the encoded image."""
        try:
            return function(value)
        # Decoders raise anything on bad bytes.
        except Exception as error:
            found = "is missing" if value is None else f"cannot be decoded ({error})"
            raise FieldError(
                "image", f"{listing.place(row)}: the image {found}", "Fix or remove the row."
            ) from None

    def _refuse_sizes(
        self, listing: Listing, row: int, image: np.ndarray, other_row: int, other: np.ndarray
    ) -> None:
        found = f"{listing.place(row)}: the image is {image.shape[1]}x{image.shape[0]} pixels"
        there = f"the one in {listing.place(other_row)} is {other.shape[1]}x{other.shape[0]}"
        raise FieldError("image", f"{found}, {there}", "Resize all images to one size.")


def _encoded(batch: Any) -> list[Any]:
    """The encoded images of a batch; None where one is missing."""
    column = batch.column(0)
    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
    encoded: list[Any] = column.to_pylist()
    return encoded


def _may_be_images(kind: Any) -> bool:
    """Whether a column of this type may hold encoded images: bytes, or structs with them."""
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
