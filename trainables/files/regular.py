"""Open regular files of a size that fits: a pipe would hang its reader, a device fill the memory.

Uses only the standard library: nodes are asked before torch is loaded.
"""

import os
import stat
from io import BufferedRandom, BufferedReader
from pathlib import Path

MOST_TEXT = 256 * 2**20  # bytes of a YAML, JSON or log file
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
}

File = BufferedReader | BufferedRandom


class NotAFile(OSError):
    """The path has no regular file, or one that is too large."""

    def __init__(self, path: Path, found: str) -> None:
        super().__init__(f"{path} {found}")
        self.found = found  # "is a pipe, not a file"


def open_regular(
    path: Path, most: int | None = None, follow: bool = True, write: bool = False
) -> File:
    """Open a regular file to read, or to change. Raises NotAFile, and the OSErrors of `open`.

    most: bytes it may have. follow: whether the path may be a symbolic link.
    """
    # Before it is opened: a tape would rewind.
    _check(path, os.stat(path, follow_symlinks=follow), most)
    # Another may take its place now. Without O_NONBLOCK, opening a pipe that nobody writes waits
    # for ever.
    flags = os.O_NONBLOCK | os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
    if not follow:
        flags |= os.O_NOFOLLOW
    number = os.open(path, flags)
    try:
        _check(path, os.fstat(number), most)
    except NotAFile:
        os.close(number)
        raise
    if write:
        return open(number, "r+b")
    return open(number, "rb")


def _check(path: Path, found: os.stat_result, most: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile(path, f"is {KINDS.get(stat.S_IFMT(found.st_mode), 'special')}, not a file")
    if most is not None and found.st_size > most:
        size = f"{found.st_size / 1e6:,.0f} MB"
        raise NotAFile(path, f"has {size}, more than the {most / 1e6:,.0f} MB that are read")


def read_regular(path: Path, most: int = MOST_TEXT, follow: bool = True) -> bytes:
    """The bytes of a regular file. Raises as `open_regular`."""
    with open_regular(path, most, follow) as file:
        return file.read(most)


def read_text(path: Path, most: int = MOST_TEXT, errors: str = "strict") -> str:
    """The text of a regular file, in UTF-8. Raises as `open_regular`; UnicodeDecodeError."""
    return read_regular(path, most).decode(errors=errors)
