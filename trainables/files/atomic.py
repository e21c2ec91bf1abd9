"""Atomic file writes; on a full disk they wait, because space is often freed.

None of them follows a symbolic link in a file's place: in a folder that others can write, it may
lead anywhere. Linked folders are followed: trials/ may lie on another disk.
"""

import errno
import hashlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

PATIENCE = 600.0  # seconds; then the error is raised
PAUSE = 2.0
_FULL = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")


def on_full(line: str | None) -> None:
    """Called while a write waits for space, each PAUSE; None: it is written, or given up. A worker,
    whose errors nobody reads, has another function here, which tells its driver."""
    if line is not None and not _printed:
        print(f"{line}.", file=sys.stderr)
    _printed[:] = [] if line is None else [line]


_printed: list[str] = []


def retry_until_space(write: Callable[[], T], path: Path) -> T:
    """The result of `write`, retried while the disk is full. `write` must be safe to retry. path:
    what it writes."""
    deadline = time.monotonic() + PATIENCE
    waits = False
    try:
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in _FULL or time.monotonic() > deadline:
                    raise
                waits = True
                on_full(_full_line(error, path))
            time.sleep(PAUSE)
    finally:
        if waits:
            on_full(None)


def _full_line(error: OSError, path: Path) -> str:
    """`No space left on device: /studies/mine/trials (12 kB free); waiting up to 10 minutes`."""
    there = next((part for part in path.absolute().parents if part.is_dir()), path)
    free = ""
    with suppress(OSError):
        free = f" ({shutil.disk_usage(there).free / 1000:,.0f} kB free)"
    what = os.strerror(error.errno or errno.ENOSPC)
    return f"{what}: {there}{free}; waiting up to {PATIENCE / 60:.0f} minutes"


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

    retry_until_space(write, path)
    return hashlib.sha256(data).hexdigest()


def write_stream(path: Path, write: Callable[["Hashing"], object]) -> str:
    """`write_whole` of what `write` writes to its file: digested on the way, never held whole."""

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

    return retry_until_space(whole, path)


class Hashing:
    """A file written from start to end; `sha256`: of what was written, `error`: why that failed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
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
    """A new file that replaces `path`, link or not, when the block ends without an error.

    Its temporary name cannot be guessed and is never opened if it exists. mode: its permissions,
    less the umask.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A new folder that replaces `path`, link or not, when the block ends without an error.

    For one writer at a time: what a killed one left is removed.
    """
    partial = path.with_name(f"{path.name}.partial")
    _remove(partial)
    partial.mkdir()
    try:
        yield partial
        _remove(path)
        partial.rename(path)
    finally:
        _remove(partial)


def _remove(folder: Path) -> None:
    """Remove a folder, or a link in its place, if there is one."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def append(
    path: Path, data: bytes, durable: bool = False, follow: bool = False, create: bool = True
) -> None:
    """Append atomically to a file without concurrent writers.

    follow: also where it is a symbolic link. create: make it if there is none.
    """
    # A pipe that nobody reads is an error, and not waited for.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK
    if not follow:
        flags |= os.O_NOFOLLOW
    if create:
        flags |= os.O_CREAT

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

    retry_until_space(write, path)
