"""The digest of a file. Uses only the standard library: nodes are asked before torch is loaded."""

import functools
import hashlib
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path

from trainables.files.regular import open_regular, read_text
from trainables.plain import Plain

BLOCKS = 32  # of a sampled digest; the first and last bytes are among them
BLOCK = 4096


def file_digest(path: Path, algorithm: str = "sha256", most: int | None = None) -> str:
    """Hex digest of a file's bytes (md5: to identify, not for security). Raises OSError.

    most: bytes it may have.
    """
    with open_regular(path, most) as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return found.hexdigest()


def known_digest(path: Path) -> str:
    """The sha256 of a file, read once per process while it keeps its size and time. Raises
    OSError."""
    found = path.stat()
    return _known_digest(path, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=1024)
def _known_digest(path: Path, size: int, modified: int) -> str:
    return file_digest(path)


def sampled_digest(path: Path) -> str:
    """Hex digest of a file's size and of some blocks: milliseconds at any size. Raises OSError.

    It tells another file, a truncated one and one with large holes; a few changed bytes only
    `file_digest` finds.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        last = max(size - BLOCK, 0)
        places = random.Random(size)  # the same blocks whenever it is asked
        found = hashlib.sha256(str(size).encode())
        for start in sorted({0, last, *(places.randint(0, last) for _ in range(BLOCKS - 2))}):
            found.update(os.pread(file.fileno(), BLOCK, start))
    return found.hexdigest()


def sidecar_digest(meta: Mapping[str, Plain]) -> str:
    """Hex digest of what a cache says of itself, but for this digest."""
    text = json.dumps({**meta, "sidecar": None}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def damaged_files(directory: Path) -> list[str]:
    """The files of a cache that are not as its meta.json says: by their size and sampled digest.

    Sizes alone count for the sealed test split, which is checked when it is opened. Raises
    OSError, ValueError and KeyError if there is no whole cache.
    """
    meta = json.loads(read_text(directory / "meta.json"))
    sampled: Mapping[str, str] = meta["sampled"]
    damaged = []
    if "sidecar" in meta and meta["sidecar"] != sidecar_digest(meta):
        damaged.append("meta.json")
    for name, size in meta["bytes"].items():
        path = directory / name
        known = sampled.get(name)
        if path.stat().st_size != size or (known and sampled_digest(path) != known):
            damaged.append(name)
    return damaged
