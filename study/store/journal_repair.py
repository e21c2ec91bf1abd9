"""What a kill or a fault left in a journal, repaired. A file that is no journal is refused, and
left as it is."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from study.schema.errors import LedgerError
from trainables.files.regular import NotAFile, open_regular
from trainables.machine import memory

MOST_LINE = 2**20  # bytes of a first line, which names an Optuna study
OPERATIONS = range(11)  # the op_codes of Optuna's journal
BEGINS = b'{"op_code":0,"worker_id":"'  # the first record makes an Optuna study


def most_bytes() -> int:
    """What a journal may have: its records take several times as much memory."""
    return memory() // 4


def check_journal(path: Path, follow: bool) -> None:
    """Raise LedgerError for what is no journal: no regular file, or the first line is no record of
    Optuna's.

    An empty file is one, as is one that a kill left with a part of its first record; so is none.
    follow: whether it may be a symbolic link.
    """
    with suppress(FileNotFoundError):
        open_journal_file(path, follow).close()


def open_journal_file(path: Path, follow: bool, write: bool = False) -> BinaryIO:
    """A journal, at its start. Raises as `check_journal`; FileNotFoundError."""
    try:
        file = open_regular(path, most_bytes(), follow, write)
    except NotAFile as error:
        fix = "" if follow else ", or write the path of the file as `ledger:`"
        raise LedgerError(f"ledger: {error}", f"Put the ledger back{fix}.") from None
    first = file.readline(MOST_LINE)
    if not (_is_record(first) if first.endswith(b"\n") else _is_begun(first)):
        file.close()
        problem = f"{path} is no ledger: its first line is no record of Optuna's"
        raise LedgerError(f"ledger: {problem}", "Restore it from a backup, or name another file.")
    file.seek(0)
    return file


def _is_record(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(found, dict)
        and type(found.get("op_code")) is int
        and found["op_code"] in OPERATIONS
        and isinstance(found.get("worker_id"), str)
    )


def _is_begun(line: bytes) -> bool:
    """Whether a kill may have left it of a journal's first record."""
    return len(line) < MOST_LINE and (line.startswith(BEGINS) or BEGINS.startswith(line))


def cut(path: Path, end: int, follow: bool) -> int:
    """Remove what a journal has after so many bytes; returns how much that was."""
    with open_journal_file(path, follow) as file:
        size = file.seek(0, os.SEEK_END) - end
    if size > 0:
        with open_journal_file(path, follow, write=True) as file:
            file.truncate(end)
    return size


def keep(path: Path, start: int, follow: bool) -> Path:
    """The new file beside a journal that has the end of it, with the journal's own permissions."""
    with open_journal_file(path, follow) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        file.seek(start)
        content = file.read()
    number = 1
    while os.path.lexists(kept := path.with_name(f"{path.name}.cut-{number}")):
        number += 1
    with open(kept, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as copy:
        os.fchmod(copy.fileno(), mode)
        copy.write(content)
        copy.flush()
        os.fsync(copy.fileno())
    return kept
