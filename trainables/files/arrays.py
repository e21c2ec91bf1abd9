"""Arrays from an npz of anybody's: what does not fit is refused before NumPy allocates it."""

import io
import math
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trainables.files.atomic import write_whole
from trainables.files.regular import NotAFile, open_regular
from trainables.machine import memory
from trainables.problems import FieldError

SMALL = 2**16  # bytes that any machine has: to ask for its memory takes milliseconds


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write an npz atomically; returns its sha256."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return write_whole(path, file.getbuffer())


def read_arrays(
    path: Path,
    wanted: str,
    only: Collection[str] | None = None,
    working: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """The arrays of an npz, or `only` these. Raises FieldError with what is `wanted`.

    working: by array, the bytes a value that casts, copies and results take in use, at most at one
    time.
    """
    with _opened(path, wanted) as file:
        _check_sizes(path, file, only, working or {})
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            names = [name for name in archive.files if only is None or name in only]
            found = {name: archive[name] for name in names}
    for name, value in found.items():
        # NumPy gives the bytes of a member that is no npy.
        if not isinstance(value, np.ndarray):
            raise FieldError(str(path), f"'{name}' is no array", f"Give {wanted}.")
    return found


def array_headers(path: Path, wanted: str) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """The shape and type that each array of an npz claims; none is read. Raises FieldError."""
    with _opened(path, wanted) as file, zipfile.ZipFile(file) as archive:
        members = [each for each in archive.infolist() if each.filename.endswith(".npy")]
        return {each.filename.removesuffix(".npy"): _header(archive, each) for each in members}


@contextmanager
def _opened(path: Path, wanted: str) -> Iterator[BinaryIO]:
    """The npz; whatever is wrong with it becomes a FieldError."""
    try:
        with open_regular(path) as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise FieldError(str(path), "is a single array", f"Give {wanted}.")
            if not zipfile.is_zipfile(file):
                raise FieldError(str(path), "is no npz", f"Give {wanted}.")
            yield file
    except FileNotFoundError:
        raise FieldError(str(path), "no such file", f"Give {wanted}.") from None
    except NotAFile as error:
        raise FieldError(str(path), error.found, f"Give {wanted}.") from None
    except FieldError:
        raise
    except MemoryError:
        raise FieldError(str(path), "its arrays take more memory than is free") from None
    except Exception as error:  # NumPy, zipfile and zlib raise anything on bad bytes
        # NumPy's advice, about a file it does not know and an array of objects.
        if "allow_pickle" in str(error):
            raise FieldError(str(path), "holds Python objects", f"Give {wanted}.") from None
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = said.splitlines()[0]
        raise FieldError(str(path), f"cannot be read as npz ({reason})") from None


def _check_sizes(
    path: Path, file: BinaryIO, only: Collection[str] | None, working: Mapping[str, int]
) -> None:
    """Raise FieldError if a header claims more bytes than there are, or memory can hold."""
    whole = used = 0
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if only is not None and name not in only:
                continue
            whole += member.file_size
            if not member.filename.endswith(".npy"):
                continue
            shape, dtype = _header(archive, member)
            claimed = math.prod(shape) * dtype.itemsize
            if claimed > member.file_size and not dtype.hasobject:
                found = f"'{name}' is {dtype} {list(shape)} by its header, {claimed:,} bytes"
                raise FieldError(
                    str(path),
                    f"{found}, but {member.file_size:,} bytes",
                    "The file is damaged: save it again.",
                )
            used += math.prod(shape) * working.get(name, 0)
    if whole + used <= SMALL:
        return
    most = memory()
    if whole > most // 2:  # they are copied
        found = f"its arrays take {whole / 1e9:,.1f} GB"
        limit = f"half of this machine's memory is {most // 2 / 1e9:,.1f} GB"
        raise FieldError(str(path), f"{found}, {limit}")
    if whole + used > most:
        found = f"its arrays and their use take {(whole + used) / 1e9:,.1f} GB"
        limit = f"this machine's memory is {most / 1e9:,.1f} GB"
        raise FieldError(str(path), f"{found}, {limit}", "Give fewer samples.")


def _header(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type that an npy in the archive claims."""
    with archive.open(member) as file:
        if np.lib.format.read_magic(file) == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    return shape, dtype
