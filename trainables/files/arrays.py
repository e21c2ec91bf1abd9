"""Arrays from an npz of anybody's: what does not fit is refused before NumPy allocates it."""

import math
import os
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trainables.cgroups import cgroup_folders, read_or_nothing
from trainables.fields import FieldError
from trainables.files.regular import NotAFile, open_regular


def memory(root: Path = Path("/")) -> int:
    """Bytes of this machine's memory, or as many of them as our cgroups allow. root: where /proc and /sys are."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder, version in cgroup_folders("memory", root):
        limit = read_or_nothing(
            folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")
        ).strip()
        if limit.isdecimal() and int(limit) > 0:  # none: max
            limits.append(int(limit))
    return min(limits)


def read_arrays(
    path: Path,
    wanted: str,
    only: Collection[str] | None = None,
    working: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """The arrays of an npz, or `only` these. Raises FieldError; if the file does not exist, with what is `wanted`.

    working: by array, the bytes a value that casts, copies and results take in use, at most at one time.
    """
    try:
        with open_regular(path) as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise FieldError(
                    str(path), "is a single array; save `logits` and `labels` with numpy.savez."
                )
            is_zip = zipfile.is_zipfile(file)
            if is_zip:
                _check_sizes(path, file, only, working or {})
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                found = {
                    name: archive[name] for name in archive.files if only is None or name in only
                }
        for name, value in found.items():
            if not isinstance(
                value, np.ndarray
            ):  # NumPy gives the bytes of a member that is no npy
                raise FieldError(str(path), f"'{name}' is no array; give {wanted}.")
        return found
    except FileNotFoundError:
        raise FieldError(str(path), f"no such file; give {wanted}.") from None
    except NotAFile as error:
        raise FieldError(str(path), f"{error.found}; give {wanted}.") from None
    except FieldError:
        raise
    except MemoryError:
        raise FieldError(str(path), "its arrays take more memory than is free.") from None
    except Exception as error:  # NumPy, zipfile and zlib raise anything on bad bytes
        if "allow_pickle" in str(
            error
        ):  # NumPy's advice, about a file it does not know and an array of objects
            problem = "holds Python objects" if is_zip else "is no npz"
            raise FieldError(str(path), f"{problem}; give {wanted}.") from None
        raise FieldError(
            str(path),
            f"cannot be read as npz ({(str(error) or type(error).__name__).splitlines()[0]}).",
        ) from None


def _check_sizes(
    path: Path, file: BinaryIO, only: Collection[str] | None, working: Mapping[str, int]
) -> None:
    """Raise FieldError if an array is longer by its header than by its bytes, or if memory cannot hold them all."""
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
                has = f"but {member.file_size:,} bytes"
                problem = (
                    f"'{name}' is {dtype} {list(shape)} by its header, {claimed:,} bytes, {has}"
                )
                raise FieldError(str(path), f"{problem}. The file is damaged: save it again.")
            used += math.prod(shape) * working.get(name, 0)
    if whole > (half := memory() // 2):  # they are copied
        problem = f"its arrays take {whole / 1e9:,.1f} GB, half of this machine's memory is {half / 1e9:,.1f} GB."
        raise FieldError(str(path), problem)
    if whole + used > (most := memory()):
        problem = f"its arrays and their use take {(whole + used) / 1e9:,.1f} GB"
        raise FieldError(
            str(path),
            f"{problem}, this machine's memory is {most / 1e9:,.1f} GB. Give fewer samples.",
        )


def _header(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type that an npy in the archive claims."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    return shape, dtype
