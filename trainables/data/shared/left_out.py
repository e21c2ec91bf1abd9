"""Which files of a folder of images are not read."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from torchvision.datasets.folder import IMG_EXTENSIONS

HIDDEN = ("thumbs.db", "desktop.ini")  # that Windows hides; elsewhere such names begin with a dot


def left_out(folders: Iterable[Path]) -> Counter[str]:
    """How many files below these folders are no images by their ending, by ending. Opens none.

    Hidden files and folders are not counted.
    """
    found: Counter[str] = Counter()
    for folder in folders:
        for _, below, files in os.walk(folder, followlinks=True):
            below[:] = [name for name in below if not name.startswith(".")]
            names = [name.lower() for name in files]
            found.update(Path(name).suffix for name in names if _is_left_out(name))
    return found


def _is_left_out(name: str) -> bool:
    """name: of a file, in lower case."""
    return not (name.startswith(".") or name in HIDDEN or name.endswith(IMG_EXTENSIONS))
