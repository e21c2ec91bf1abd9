"""Files whole or not at all; a full disk, on a real one of 64 KiB where mounting is allowed, is waited for."""

import errno
import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainables.files import atomic
from trainables.files.atomic import append, retry_until_space, write_whole


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here: a full disk is not tried")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_file_is_what_was_given_and_its_digest(tmp_path: Path) -> None:
    assert write_whole(tmp_path / "f", b"one", durable=True) == hashlib.sha256(b"one").hexdigest()
    write_whole(tmp_path / "f", b"two")
    append(tmp_path / "f", b", three")
    assert (tmp_path / "f").read_bytes() == b"two, three" and os.listdir(tmp_path) == ["f"]


def test_a_full_disk_is_waited_for(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "PAUSE", 0.01)
    write_whole(small_disk / "kept", b"before")
    (small_disk / "log").write_bytes(b"line 1\n")
    (small_disk / "filler").write_bytes(b"x" * 52_000)
    writers = [
        threading.Thread(target=write_whole, args=(small_disk / "kept", b"y" * 20_000)),
        threading.Thread(target=append, args=(small_disk / "log", b"z" * 20_000)),
    ]
    for writer in writers:
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
    # Waiting, what was there is still there, and nothing half.
    assert (small_disk / "kept").read_bytes() == b"before"
    assert (small_disk / "log").read_bytes().startswith(b"line 1\n")
    (small_disk / "filler").unlink()
    for writer in writers:
        writer.join(10)
    assert (small_disk / "kept").read_bytes() == b"y" * 20_000
    assert (small_disk / "log").read_bytes() == b"line 1\n" + b"z" * 20_000


def test_the_waiting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "PAUSE", 0.01)
    monkeypatch.setattr(atomic, "PATIENCE", 0.1)
    tried = []

    def full() -> None:
        tried.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        retry_until_space(full)
    assert len(tried) > 2


def test_another_trouble_goes_through_at_once() -> None:
    tried = []

    def refused() -> None:
        tried.append(1)
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(PermissionError):
        retry_until_space(refused)
    assert len(tried) == 1
