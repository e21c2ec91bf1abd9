"""Small files that claim to be large."""

import io
import struct
import zipfile
import zlib
from pathlib import Path

from PIL import Image


def png_of(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is that large."""
    buffer = io.BytesIO()
    Image.new("L", (1, 1)).save(buffer, "png")
    encoded = bytearray(buffer.getvalue())
    # In the header, which ends with its checksum.
    encoded[16:24] = struct.pack(">II", width, height)
    encoded[29:33] = struct.pack(">I", zlib.crc32(encoded[12:29]))
    return bytes(encoded)


def npy_of(shape: tuple[int, ...]) -> bytes:
    """The header of an array of that shape, and eight of its bytes."""
    header = (
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    )
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(8)


def npz_of(path: Path, shape: tuple[int, ...]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits.npy", npy_of(shape))
    return path
