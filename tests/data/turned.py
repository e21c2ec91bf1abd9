"""Images with an EXIF orientation, made here."""

import io
from typing import Any

import numpy as np
from PIL import ExifTags, Image

# What a camera stores of the upright image [[1, 2, 3], [4, 5, 6]], by orientation, written by hand
# from the names of the sides in CIPA DC-008 (tag 274): where the first row and column lie.
STORED = {
    1: [[1, 2, 3], [4, 5, 6]],  # top, left
    2: [[3, 2, 1], [6, 5, 4]],  # top, right
    3: [[6, 5, 4], [3, 2, 1]],  # bottom, right
    4: [[4, 5, 6], [1, 2, 3]],  # bottom, left
    5: [[1, 4], [2, 5], [3, 6]],  # left, top
    6: [[3, 6], [2, 5], [1, 4]],  # right, top
    7: [[6, 3], [5, 2], [4, 1]],  # right, bottom
    8: [[4, 1], [5, 2], [6, 3]],  # left, bottom
}
UPRIGHT = np.array(STORED[1], dtype=np.uint8)


def tagged(values: Any, orientation: Any, kind: str = "png", **options: Any) -> bytes:
    """An encoded image of these values, with the tag."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(values, dtype=np.uint8)).save(buffer, kind, exif=exif, **options)
    return buffer.getvalue()
