"""The EXIF orientation of an image: how its stored pixels are turned to be upright.

EXIF 2.32 (CIPA DC-008), tag 274, as Pillow's `ImageOps.exif_transpose` applies it. A block that is
broken, or whose orientation is not 1 to 8, counts as none. XMP, which only newer versions of Pillow
look at, is not read.
"""

import hashlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from PIL import ExifTags, Image

UPRIGHT = 1
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,  # counterclockwise
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)  # they swap the sides
JPEG = b"\xff\xd8"
PNG = b"\x89PNG\r\n\x1a\n"
TIFF = (b"II", b"MM")
APP1, SCAN = 0xE1, 0xDA  # markers: of a segment that may have EXIF, and where the pixels begin
EXIF = b"eXIf"  # a chunk of PNG, anywhere in the file
TEXTS = (b"iTXt", b"tEXt", b"zTXt")  # others, in which older programs wrote it by this name
PROFILE = "Raw profile type exif"

# A broken block counts as none.
warnings.filterwarnings("ignore", message="Corrupt EXIF data")


def orientation_of(encoded: bytes) -> int:
    """1 to 8; 1 also of what is no image. Decodes nothing.

    1 of TIFF, which Pillow turns as it decodes.
    """
    try:
        chunks = dict(_chunks(encoded)) if encoded.startswith(PNG) else {}
        if not _may_be_turned(encoded, chunks):
            return UPRIGHT
        with Image.open(io.BytesIO(encoded)) as image:  # a PNG's EXIF may be behind its pixels
            info = {**image.info, "exif": chunks[EXIF]} if EXIF in chunks else image.info
            return _named(info)
    # Pillow raises anything on bad bytes; what decodes them says so.
    except Exception:
        return UPRIGHT


def orientation_in(image: Image.Image) -> int:
    """1 to 8, of an image that is decoded."""
    try:
        return _named(image.info)
    # Pillow raises anything on a broken block.
    except Exception:
        return UPRIGHT


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """The image upright."""
    if orientation == UPRIGHT:
        return image
    return image.transpose(TURNS[orientation])


def upright_size(image: Image.Image, orientation: int) -> tuple[int, int]:
    """(height, width) once it is upright."""
    width, height = image.size
    return (width, height) if orientation in SIDEWAYS else (height, width)


def digest_with(digest: str, orientations: Sequence[str]) -> str:
    """The digest of a source, of which the orientations are a part if there are any but 1.

    orientations: what each such image is called, and its orientation.
    """
    if not orientations:
        return digest
    return hashlib.sha256("\n".join([digest, *orientations]).encode()).hexdigest()


def _named(info: Mapping[Any, Any]) -> int:
    """The orientation in what Pillow knows of an image. Raises anything where it is broken."""
    block = info.get("exif")
    if block is None:
        block = bytes.fromhex("".join(info.get(PROFILE, "").split("\n")[3:]))
    exif = Image.Exif()
    exif.load(block)
    found = exif.get(ExifTags.Base.Orientation)
    return found if type(found) is int and found in TURNS else UPRIGHT


def _may_be_turned(encoded: bytes, chunks: Mapping[bytes, bytes]) -> bool:
    """False where the headers alone tell that there is no orientation: much faster than Pillow."""
    if encoded.startswith(PNG):
        return bool(chunks)
    if encoded.startswith(JPEG):
        return APP1 in _markers(encoded)
    if encoded.startswith(b"RIFF"):  # of WebP, only the extended format
        return encoded[12:16] == b"VP8X"
    return not encoded.startswith(TIFF)


def _markers(encoded: bytes) -> Iterator[int]:
    """Those of the segments of a JPEG before its pixels."""
    place = len(JPEG)
    while (marker := encoded[place + 1]) != SCAN:
        if encoded[place] != 0xFF or marker == 0xFF:  # filled: only Pillow finds the next
            yield APP1
        yield marker
        place += 2 + int.from_bytes(encoded[place + 2 : place + 4])


def _chunks(encoded: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(name, content) of the chunks of a PNG that may have an orientation."""
    place = len(PNG)
    while place < len(encoded):
        size = int.from_bytes(encoded[place : place + 4])
        name = encoded[place + 4 : place + 8]
        start = place + 8
        if name == EXIF or (name in TEXTS and encoded.startswith(PROFILE.encode(), start)):
            yield name, encoded[start : start + size]
        place = start + size + 4  # its checksum
