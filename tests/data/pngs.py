"""Images and masks as PNGs, made here."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from trainables.dataset import Dataset
from trainables.problems import FieldError

PALETTE = list(np.random.default_rng(0).permutation(256)) * 3  # no colour is its index


def encoded(values: Any, mode: str = "L", kind: str = "png") -> bytes:
    """An image of these values; with a palette, whose colours are others."""
    image = Image.fromarray(np.asarray(values, dtype=np.uint8))
    if mode == "P":
        image = Image.frombytes("P", image.size, image.tobytes())
        image.putpalette(PALETTE)
    elif mode == "1":
        image = image.point(lambda value: 255 * value).convert("1")
    elif mode != "L":
        image = image.convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def of_few_bits(values: np.ndarray, bits: int) -> bytes:
    """A grey PNG of 2 or 4 bits, written by hand: Pillow writes none."""
    single = np.unpackbits(values.astype(np.uint8)[..., None], axis=-1)[..., -bits:]
    rows = np.packbits(single.reshape(len(values), -1), axis=1)
    return png_by_hand(rows, values.shape[1], bits, 0)


def of_16_bits(colour: int, shape: tuple[int, int] = (4, 6)) -> bytes:
    """A PNG of noise, (height, width), written by hand: Pillow writes grey alone.

    colour: as PNG numbers it; 0 grey, 2 RGB, 4 grey with alpha, 6 RGB with alpha.
    """
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    rows = np.random.default_rng(0).integers(0, 256, (shape[0], 2 * channels * shape[1]))
    return png_by_hand(rows.astype(np.uint8), shape[1], 16, colour)


def png_by_hand(rows: np.ndarray, width: int, bits: int, colour: int) -> bytes:
    """rows: the bytes of each."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + crc(name + content)

    def crc(content: bytes) -> bytes:
        return struct.pack(">I", zlib.crc32(content))

    header = struct.pack(">IIBBBBB", width, len(rows), bits, colour, 0, 0, 0)
    lines = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")
    )


def photo(value: int, size: tuple[int, int] = (4, 6), mode: str = "RGB") -> bytes:
    """An image of one colour, (height, width)."""
    return encoded(np.full(size, value), mode)


MASKS = [
    [[0, 1, 2, 255, 255, 255], *[[0] * 6] * 3],
    [[2, 2, 1, 0, 0, 0], *[[1] * 6] * 3],
    [[0, 1, 1, 255, 0, 0], *[[2] * 6] * 3],
    [[255, 0, 2, 1, 0, 0], *[[2] * 6] * 3],
]
WRONG = np.where(np.asarray(MASKS[1]) == 0, 9, MASKS[1])  # three pixels, the first at 0, 3


def stored(masks: Any, void: tuple[int, ...] = (255,)) -> list[Any]:
    """Class + 1, pixel by pixel; 0 for void."""
    return [[[0 if v in void else v + 1 for v in row] for row in mask] for mask in masks]


def error_of(dataset: Dataset) -> FieldError:
    with pytest.raises(FieldError) as caught:
        dataset.read()
    assert "\n" not in caught.value.problem
    return caught.value
