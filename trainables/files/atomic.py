"""Atomic file writes; on a full disk they wait, because space is often freed.

None of them follows a symbolic link in a file's place: in a folder that others can write, it may lead anywhere. Linked
folders are followed: trials/ may lie on another disk.
"""

import errno
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

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
                print(
                    f"no space left{where}: waiting up to {PATIENCE / 60:.0f} minutes.",
                    file=sys.stderr,
                )
                reported = True
        time.sleep(PAUSE)


def write_whole(
    path: Path, data: bytes | memoryview, durable: bool = False, mode: int = 0o666
) -> str:
    """Write a file atomically (temporary file, then rename); returns its sha256.

    `durable`: fsync before the rename. `mode`: as in `replacing`.
    """

    def write() -> None:
        with replacing(path, mode) as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())

    retry_until_space(write)
    return hashlib.sha256(data).hexdigest()


def write_stream(path: Path, write: Callable[["Hashing"], object]) -> str:
    """`write_whole` of what `write` writes to the file it is given: digested on the way, never held whole."""

    def whole() -> str:
        with replacing(path) as file:
            hashing = Hashing(file)
            try:
                write(hashing)
            except Exception:
                if hashing.error is not None:  # what calls us from C++ makes another error of it
                    raise hashing.error from None
                raise
        return hashing.sha256.hexdigest()

    return retry_until_space(whole)


class Hashing:
    """A file that is written from its start to its end; `sha256` is of what was written, `error` is why that failed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.sha256 = file, hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        try:
            self.sha256.update(data)
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Closing the file does."""


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends without an error; a link there is replaced.

    Its temporary name cannot be guessed and is never opened if it exists. mode: its permissions, less the umask.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def append(
    path: Path, data: bytes, durable: bool = False, follow: bool = False, create: bool = True
) -> None:
    """Append atomically to a file without concurrent writers.

    follow: also where it is a symbolic link. create: make it if there is none.
    """
    flags = (
        os.O_WRONLY | os.O_APPEND | (0 if follow else os.O_NOFOLLOW) | (os.O_CREAT if create else 0)
    )
    flags |= os.O_NONBLOCK  # a pipe that nobody reads is an error, and not waited for

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
