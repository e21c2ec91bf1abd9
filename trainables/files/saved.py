"""Files of torch.save, checked before torch.load takes memory for them."""

import hashlib
import io
import zipfile
from pathlib import Path
from typing import BinaryIO

import torch

from trainables.files.regular import NotAFile, open_regular
from trainables.machine import memory
from trainables.problems import FieldError

BYTEARRAY = b"\nbytearray\n"  # as pickle names it


def check_saved(path: Path) -> None:
    """Raise FieldError for a file not by torch.save, or too large for memory; OSError."""
    try:
        with open_regular(path) as file:
            problem = saved_problem(file)
    except NotAFile as error:
        problem = error.found
    if problem is not None:
        raise FieldError(str(path), problem, "Restore it from a backup.")


def saved_problem(file: BinaryIO) -> str | None:
    """Why the zip of torch.save cannot be loaded; None if it can. Leaves the file at its start.

    torch.save stores its records; torch.load would inflate others, a thousand times as large as the
    file.
    """
    size = file.seek(0, 2)
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
        file.seek(0)
        makes_memory = _makes_memory(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        return f"is no file of torch.save ({error})"
    finally:
        file.seek(0)
    for record in records:
        if record.compress_type != zipfile.ZIP_STORED or record.compress_size != record.file_size:
            name = record.filename[:100]
            return f"has a compressed record ({name!r}), which torch.save never writes"
    whole = sum(record.file_size for record in records)
    if whole > size:
        return f"has records of {whole:,} bytes in a file of {size:,}"
    if makes_memory:
        return "makes memory that no file of torch.save makes (bytearray)"
    if whole > memory():
        return f"takes {whole / 1e9:,.1f} GB, this machine's memory is {memory() / 1e9:,.1f} GB"
    return None


def weights_problem(file: BinaryIO) -> str | None:
    """As `saved_problem`, also of the older format of torch.save, which is no zip."""
    if zipfile.is_zipfile(file):
        return saved_problem(file)
    file.seek(0)
    return "makes memory that no weights need (bytearray)" if _makes_memory(file) else None


def _makes_memory(file: BinaryIO) -> bool:
    """Whether its pickle calls bytearray, which weights_only allows: a few bytes make gigabytes."""
    last = b""
    while part := file.read(2**20):
        if BYTEARRAY in last + part:
            return True
        last = part[-len(BYTEARRAY) :]
    return False


def digested_payload(path: Path) -> bytes | None:
    """The inner file of a checkpoint; None if it is not as its digest says, or too large.

    Raises as `check_saved`, and what torch raises.
    """
    check_saved(path)
    outer = torch.load(path, weights_only=True, map_location="cpu")
    if outer["state"].numel() > path.stat().st_size:  # a tensor may repeat one byte
        return None
    payload: bytes = outer["state"].numpy().tobytes()
    if hashlib.sha256(payload).hexdigest() != outer["sha256"]:
        return None
    if saved_problem(io.BytesIO(payload)) is not None:
        return None
    return payload
