"""Files whole or not at all; a full disk, on a real one of 64 KiB where mounting is
allowed, is waited for."""

import errno
import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from trainables.files import atomic
from trainables.files.atomic import append, retry_until_space, write_stream, write_whole


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
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


@pytest.mark.platform
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


def test_a_stream_is_what_was_written_and_its_digest_and_a_full_disk_is_waited_for(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's writer, in C++, makes a RuntimeError of an OSError."""
    monkeypatch.setattr(atomic, "PAUSE", 0.01)
    (small_disk / "filler").write_bytes(b"x" * 52_000)
    found: list[str] = []
    weights = {"weights": torch.arange(5_000.0)}
    saving = threading.Thread(
        target=lambda: found.append(
            write_stream(small_disk / "model.pt", lambda file: torch.save(weights, file))
        )
    )
    saving.start()
    saving.join(0.3)
    assert saving.is_alive() and not (small_disk / "model.pt").exists()
    (small_disk / "filler").unlink()
    saving.join(10)
    assert found == [hashlib.sha256((small_disk / "model.pt").read_bytes()).hexdigest()]
    read = torch.load(small_disk / "model.pt", weights_only=True)
    assert torch.equal(read["weights"], weights["weights"]) and os.listdir(small_disk) == [
        "model.pt"
    ]


def test_what_fails_while_streaming_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        write_stream(tmp_path / "f", lambda file: file.write(b"half") and 1 // 0)
    assert os.listdir(tmp_path) == []


def test_the_waiting_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(atomic, "PAUSE", 0.01)
    monkeypatch.setattr(atomic, "PATIENCE", 0.1)
    tried = []

    def full() -> None:
        tried.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        retry_until_space(full, tmp_path / "f")
    assert len(tried) > 2
    lines = capsys.readouterr().err.splitlines()
    assert lines and lines[0].startswith(f"No space left on device: {tmp_path} (")
    assert lines[0].endswith(" kB free); waiting up to 0 minutes.")


def test_another_trouble_goes_through_at_once() -> None:
    tried = []

    def refused() -> None:
        tried.append(1)
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(PermissionError):
        retry_until_space(refused, Path("f"))
    assert len(tried) == 1


def test_no_link_is_followed(tmp_path: Path) -> None:
    victim = tmp_path / "bashrc"
    victim.write_bytes(b"mine")
    place = tmp_path / "study" / "page"
    place.parent.mkdir()
    for name in ("page", "page.partial"):
        (place.parent / name).symlink_to(victim)
    write_whole(place, b"page")
    assert place.read_bytes() == b"page" and not place.is_symlink()  # the link itself is replaced
    (place.parent / "log").symlink_to(victim)
    with pytest.raises(OSError) as refused:
        append(place.parent / "log", b"line")
    assert refused.value.errno == errno.ELOOP
    assert victim.read_bytes() == b"mine"
    append(place.parent / "log", b", line", follow=True)  # a ledger that its user linked
    assert victim.read_bytes() == b"mine, line"


def test_a_linked_folder_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "trials").symlink_to(tmp_path / "disk")
    write_whole(tmp_path / "trials" / "f", b"one")
    append(tmp_path / "trials" / "log", b"two")
    assert (tmp_path / "disk" / "f").read_bytes() == b"one" and (
        tmp_path / "disk" / "log"
    ).read_bytes() == b"two"


def test_a_file_has_the_mode_of_the_umask_or_less(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "shared", b"")
        write_whole(tmp_path / "secret", b"", mode=0o600)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("shared", "secret")] == [
        0o640,
        0o600,
    ]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"before")
    with pytest.raises(ValueError), atomic.replacing(tmp_path / "f") as file:
        file.write(b"half")
        raise ValueError
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"before"
