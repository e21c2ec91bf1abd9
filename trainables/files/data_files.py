"""The files of a data set, which anybody wrote: opened here alone, and read in pieces that fit.

Each is a regular file; whatever else is found is a FieldError that names the user's field.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from trainables.files.digest import file_digest
from trainables.files.regular import File, NotAFile, open_regular
from trainables.problems import FieldError

# In bytes: far above what is met, and far below what a machine's memory holds.
MOST_IMAGE = 256 * 2**20  # of an encoded image or mask
MOST_WORDS = 16 * 2**20  # of a sample that is text
MOST_LIST = 64 * 2**20  # of a list of names
MOST_LINE = 2**20  # of a line: a vector of 50,000 numbers, a tree of 50,000 words


def open_data_file(field: str, file: Path, most: int | None = None) -> File:
    """The regular file, opened to read. most: bytes it may have. Raises FieldError."""
    with _errors_of(field, file):
        return open_regular(file, most)


def bytes_of(field: str, file: Path, most: int = MOST_IMAGE) -> bytes:
    """The bytes of the file. Raises FieldError."""
    with open_data_file(field, file, most) as opened, _errors_of(field, file):
        return opened.read(most)


def digest_of(field: str, file: Path, digest: Callable[[Path], str] = file_digest) -> str:
    """The sha256 of the file. Raises FieldError."""
    with _errors_of(field, file):
        return digest(file)


def lines_of(field: str, file: Path, most: int | None = MOST_LIST) -> Iterator[tuple[int, str]]:
    """The number of each line, from 1, and its text without spaces around it. Raises FieldError."""
    with open_data_file(field, file, most) as opened:
        for number, line in byte_lines(field, file, opened):
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError:
                found = f"{file}, line {number}: it is not UTF-8"
                raise FieldError(field, found, "Save the file as UTF-8.") from None


def byte_lines(field: str, file: Path, opened: File) -> Iterator[tuple[int, bytes]]:
    """The number of each line, from 1, and its bytes. Raises FieldError."""
    for number in count(1):
        with _errors_of(field, file):
            line = opened.readline(MOST_LINE + 1)
        if not line:
            return
        if len(line) > MOST_LINE:
            found = f"{file}, line {number} has more than {MOST_LINE / 2**20:g} MB"
            raise FieldError(field, found, "Is it the right file?")
        yield number, line


@contextmanager
def _errors_of(field: str, file: Path) -> Iterator[None]:
    try:
        yield
    except NotAFile as error:
        raise FieldError(field, f"{file} {error.found}") from None
    except OSError as error:
        raise FieldError(field, f"{file} cannot be read: {error.strerror or error}") from None
