"""Atomic file writes; on a full disk they wait, because space is often freed."""

import errno
import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

PATIENCE = 600.0  # seconds; then the error is raised
PAUSE = 2.0
_FULL = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")


def retry_until_space(write: Callable[[], T]) -> T:
    """The result of `write`, retried while the disk is full. `write` must be safe to retry."""
    deadline, reported = time.monotonic() + PATIENCE, False
    while True:
        try:
            return write()
        except OSError as error:
            if error.errno not in _FULL or time.monotonic() > deadline:
                raise
            if not reported:
                where = f" at {error.filename}" if error.filename else ""
                print(f"no space left{where}: waiting up to {PATIENCE / 60:.0f} minutes.", file=sys.stderr)
                reported = True
        time.sleep(PAUSE)


def write_whole(path: Path, data: bytes | memoryview, durable: bool = False) -> str:
    """Write a file atomically (temporary file, then rename); returns its sha256.

    `durable`: fsync before the rename.
    """

    def write() -> None:
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)

    retry_until_space(write)
    return hashlib.sha256(data).hexdigest()


def append(path: Path, data: bytes, durable: bool = False, create: bool = True) -> None:
    """Append atomically to a file without concurrent writers. create: make it if there is none."""
    flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT if create else 0)

    def write() -> None:
        with open(os.open(path, flags, 0o666), "ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                if file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
                if durable:
                    os.fsync(file.fileno())
            except OSError:
                file.truncate(before)
                raise

    retry_until_space(write)
