"""Images with an EXIF orientation are read upright, against pixels in hand-written order and
Pillow's `exif_transpose`; and what has none is as it was."""

import hashlib
import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageFile, ImageOps, PngImagePlugin

from study.notebook.samples import array_of
from tests.data.pngs import encoded, error_of, photo
from tests.data.turned import STORED, UPRIGHT, tagged
from trainables.data.image_folder import ImageFolder
from trainables.data.mask_folder import MaskFolder
from trainables.data.parquet import Parquet
from trainables.data.shared.images import decode, shape_of
from trainables.data.shared.masks import decode_mask
from trainables.data.shared.orientation import orientation_of
from trainables.dataset import Dataset

ORIENTATIONS = sorted(STORED)
XMP = '<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
# The byte order and the first directory: its one entry, the orientation, of type SHORT.
SIX = b"MM\0*\0\0\0\x08" + struct.pack(">HHHIHHI", 1, 274, 3, 1, 6, 0, 0)
PROFILE = f"\nexif\n{len(SIX) + 6}\n{(b'Exif' + bytes(2) + SIX).hex()}\n"
NOISE = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)


def saved(values: np.ndarray, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(name: bytes, content: bytes) -> bytes:
    """Of a PNG; Pillow compares the checksums of the chunks that it needs alone."""
    return struct.pack(">I", len(content)) + name + content + bytes(4)


def behind_the_pixels(png: bytes, added: bytes) -> bytes:
    return png[:-12] + added + png[-12:]  # before IEND


def with_text(key: str, value: str, zipped: bool) -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text(key, value, zip=zipped)
    return saved(NOISE, "png", pnginfo=info)


def filled(jpeg: bytes) -> bytes:
    """With a byte between segments that means nothing."""
    return jpeg[:2] + b"\xff" + jpeg[2:]


def turned_by_pillow(content: bytes) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB"))


# ---- one image -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_the_stored_order_of_pixels_becomes_the_upright_one(orientation: int, kind: str) -> None:
    options = {"lossless": True} if kind == "webp" else {}
    content = tagged(STORED[orientation], orientation, kind, **options)
    assert decode(content)[..., 0].tolist() == UPRIGHT.tolist()
    assert shape_of(content)[1:] == UPRIGHT.shape
    # Pillow turns TIFF itself, and did before.
    assert orientation_of(content) == (1 if kind == "tiff" else orientation)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_photo_is_what_pillow_makes_of_it(orientation: int) -> None:
    content = tagged(NOISE, orientation, "jpeg")
    wanted = turned_by_pillow(content)
    assert np.array_equal(decode(content), wanted)
    assert shape_of(content) == (3, *wanted.shape[:2])
    cut = ImageOps.fit(Image.fromarray(wanted), (6, 10), Image.Resampling.BILINEAR)
    assert np.array_equal(decode(content, [10, 6]), np.asarray(cut))
    assert np.array_equal(array_of(Image.open(io.BytesIO(content))).transpose(1, 2, 0), wanted)


PLACES = {
    "behind the pixels of a PNG": behind_the_pixels(saved(NOISE, "png"), chunk(b"eXIf", SIX)),
    "in a profile of a PNG": with_text("Raw profile type exif", PROFILE, False),
    "in a packed profile of a PNG": with_text("Raw profile type exif", PROFILE, True),
    "in a JPEG with bytes between": filled(tagged(NOISE, 6, "jpeg")),
    "in an AVIF": tagged(NOISE, 6, "avif") if "AVIF" in Image.SAVE else tagged(NOISE, 6),
}


@pytest.mark.parametrize("content", PLACES.values(), ids=list(PLACES))
def test_the_orientation_is_found_where_pillow_finds_it(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert np.array_equal(decode(content), turned_by_pillow(content))
    assert decode(content).shape == (24, 16, 3)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("decoded"))
    assert orientation_of(content) == 6 and shape_of(content) == (3, 24, 16)


@pytest.mark.parametrize("kind", ["jpeg", "webp"])
def test_the_orientation_of_xmp_is_not_read(kind: str) -> None:
    """Versions of Pillow differ in it, and a digest must not."""
    content = saved(NOISE, kind, xmp=XMP.encode())
    assert orientation_of(content) == 1 and decode(content).shape == (16, 24, 3)
    assert array_of(Image.open(io.BytesIO(content))).shape == (3, 16, 24)


def exif_of(kind: int, value: bytes, count: int = 1) -> bytes:
    """kind: 3 of a SHORT, 2 of a text."""
    return b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">HHHI", 1, 274, kind, count) + value + bytes(4)


BROKEN = {
    "orientation 0": exif_of(3, b"\0\0\0\0"),
    "orientation 9": exif_of(3, b"\0\x09\0\0"),
    "a text": exif_of(2, b"six\0", 4),
    "cut in its directory": exif_of(3, b"\0\x06\0\0")[:20],
    "cut in its header": exif_of(3, b"\0\x06\0\0")[:9],
    "no directory": b"Exif\0\0no directory at all",
    "empty": b"Exif\0\0",
}


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
@pytest.mark.parametrize("exif", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_block_counts_as_none(exif: bytes, kind: str) -> None:
    content = saved(NOISE, kind, exif=exif)
    assert orientation_of(content) == 1 and shape_of(content) == (3, 16, 24)
    with Image.open(io.BytesIO(content)) as stored:
        assert np.array_equal(decode(content), np.asarray(stored))


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff", "bmp"])
def test_what_is_cut_short_has_none_to_name(kind: str) -> None:
    """At any byte; to decode it says what is wrong."""
    content = saved(NOISE, kind)
    assert {orientation_of(content[:end]) for end in range(0, len(content), 7)} == {1}


# ---- masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_mask_is_turned_by_its_own_tag(orientation: int) -> None:
    content = tagged(STORED[orientation], orientation)
    assert decode_mask(content, (2, 3)).tolist() == UPRIGHT.tolist()


def mask_folder(root: Path, images: list[bytes], masks: list[bytes]) -> Dataset:
    for folder, contents in {"images": images, "masks": masks}.items():
        (root / folder).mkdir(parents=True)
        for place, content in enumerate(contents):
            (root / folder / f"{place}.png").write_bytes(content)
    return MaskFolder(path=str(root))


def mask_column(root: Path, images: list[bytes], masks: list[bytes]) -> Dataset:
    root.mkdir()
    found = {"image": images, "mask": masks, "split": ["train"] * len(images)}
    pq.write_table(pa.table(found), root / "a.parquet")
    return Parquet(path=str(root / "a.parquet"), mask="mask")


@pytest.mark.parametrize("sources", [mask_folder, mask_column])
def test_an_image_and_its_mask_are_compared_upright(
    sources: Callable[..., Dataset], tmp_path: Path
) -> None:
    """One of the two has a tag, both, or neither."""
    mask = UPRIGHT % 3
    plain = [photo(7, (2, 3), "L")] * 4, [encoded(mask)] * 4
    image, on_side = tagged([[7, 7]] * 3, 6), tagged(np.rot90(mask), 6)
    mixed = sources(
        tmp_path / "mixed",
        [image, image, *plain[0][:2]],
        [on_side, plain[1][0], on_side, plain[1][0]],
    )
    found, wanted = mixed.read().train.images, sources(tmp_path / "plain", *plain).read()
    assert np.array_equal(found, wanted.train.images)
    assert mixed.samples_header().shape == (1, 2, 3)
    upright = [encoded(np.rot90(mask))] * 4  # without the tag
    error = error_of(sources(tmp_path / "apart", [image] * 4, upright))
    assert "the mask is 2x3 pixels, its image 3x2" in error.problem


# ---- the digest ----------------------------------------------------------------------------------


def folder(root: Path, contents: dict[str, bytes]) -> ImageFolder:
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return ImageFolder(path=str(root))


def stored_digest(contents: dict[str, bytes]) -> str:
    """That of a folder before any image was turned."""
    found = hashlib.sha256(json.dumps([None, ["a", "b"]]).encode())
    for name, content in contents.items():
        label = "ab".index(name[0])
        sha256 = hashlib.sha256(content).hexdigest()
        found.update(f"train {label} {name} {sha256}\n".encode())
    return found.hexdigest()


def test_the_digest_names_an_orientation_only_where_there_is_one(tmp_path: Path) -> None:
    same = {"a/0.png": tagged(UPRIGHT, 1), "b/0.png": tagged(UPRIGHT, 9), "b/1.png": photo(1)}
    data = folder(tmp_path / "same", same)
    assert data.source_digest() == data.unturned_digest() == stored_digest(same)
    turned = {**same, "b/1.png": tagged(UPRIGHT, 3)}
    data = folder(tmp_path / "turned", turned)
    assert data.unturned_digest() == stored_digest(turned) != data.source_digest()
