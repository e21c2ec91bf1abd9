"""The lock of exports, for those who may not write it."""

import fcntl
import os
from pathlib import Path

import pytest

from study.store.driver_lock import EXPORT, export_lock


def test_another_users_lock_is_held_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / EXPORT).touch(0o444)
    opened = os.open

    def refusing(path: Path, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR:  # root may write all
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", refusing)
    with export_lock(tmp_path) as alone:
        assert alone and is_taken(tmp_path / EXPORT)
    assert not is_taken(tmp_path / EXPORT)


def is_taken(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
