"""What a kill or a fault left in a journal, repaired. A file that is no journal is refused, and
left as it is."""

from __future__ import annotations

import json
import os
import re
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
# What Optuna adds to a lock that it removes.
RENAMED = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.rename"


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


def repair_journal(path: Path, follow: bool = True) -> list[str]:
    """Repair what a killed driver left, under the driver's lock; returns what was repaired.

    An incomplete last line was never acknowledged, and the next write would be appended to it: it
    is removed. A stale lock of the journal would delay the next write by 30 seconds: it is removed
    too. Raises LedgerError for what is no journal.
    """
    try:
        file = open_journal_file(path, follow)
    except FileNotFoundError:
        return _remove_locks(path)
    with file:
        size = file.seek(0, os.SEEK_END)
        whole = _last_line(file, size)
    repaired = _remove_locks(path)
    if whole < size:
        with open_journal_file(path, follow, write=True) as file:
            file.truncate(whole)
        repaired.append(f"removed an incomplete last line of {size - whole} bytes from {path.name}")
    return repaired


def cut(path: Path, start: int, follow: bool) -> str:
    """Remove the last line of a journal, which is kept in a file beside it; says so.

    start: where it begins.
    """
    with open_journal_file(path, follow, write=True) as file:
        file.seek(start)
        content = file.read()
        kept = _keep(path, content, stat.S_IMODE(os.fstat(file.fileno()).st_mode))
        file.truncate(start)
    return (
        f"removed a broken last line of {len(content)} bytes from {path.name} and kept it in"
        f" {kept.name}"
    )


def _keep(path: Path, content: bytes, mode: int) -> Path:
    """The new file beside a journal that has a part of it, with the journal's own permissions."""
    number = 1
    while os.path.lexists(kept := path.with_name(f"{path.name}.cut-{number}")):
        number += 1
    with open(kept, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return kept


def _last_line(file: BinaryIO, end: int) -> int:
    """Where the line begins that ends at `end`: after the newline before it."""
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _remove_locks(path: Path) -> list[str]:
    """Remove the locks that Optuna's JournalFileSymlinkLock left; raises LedgerError for another in
    its place.

    Each is a link to the journal, wherever that lay then. Optuna would wait for another one, then
    remove it.
    """
    removed = []
    lock = path.with_name(f"{path.name}.lock")
    renamed = [
        file
        for file in path.parent.iterdir()
        if re.fullmatch(re.escape(lock.name) + RENAMED, file.name)
    ]
    for found in filter(os.path.lexists, [lock, *renamed]):
        if found.is_symlink() and os.path.basename(os.readlink(found)) == path.name:
            found.unlink(missing_ok=True)
            removed.append(f"removed the stale {found.name}")
        elif found == lock:
            raise LedgerError(
                f"ledger: {lock} is no lock that calstudy makes",
                "Remove it, if nothing else uses it.",
            )
    return removed
