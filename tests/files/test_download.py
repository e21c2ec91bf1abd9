"""A published file: whole and verified, or the reasons on one line. `file:` URLs
are the internet here."""

import hashlib
from pathlib import Path

import pytest

from trainables.files.digest import file_digest
from trainables.files.download import DownloadError, download


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_takes_the_first_that_gives_the_file(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"another file")
    (tmp_path / "right").write_bytes(b"the file")
    urls = [(tmp_path / name).as_uri() for name in ("nowhere", "other", "right")]
    target = tmp_path / "folder" / "target"
    download(urls, target, "md5", md5(b"the file"))
    assert target.read_bytes() == b"the file" and file_digest(target, "md5") == md5(b"the file")
    assert not list(target.parent.glob("*.partial"))


def test_a_file_that_is_there_is_not_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"the file")
    download([], tmp_path / "target", "md5", md5(b"the file"))


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"the file")
    (tmp_path / "target").write_bytes(b"the f")
    download([(tmp_path / "source").as_uri()], tmp_path / "target", "md5", md5(b"the file"))
    assert (tmp_path / "target").read_bytes() == b"the file"


def test_all_that_was_tried_is_said_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"another file")
    urls = [(tmp_path / name).as_uri() for name in ("nowhere", "other")]
    with pytest.raises(DownloadError) as error:
        download(urls, tmp_path / "target", "md5", md5(b"the file"))
    said = str(error.value)
    assert "\n" not in said and all(url in said for url in urls)
    assert f"is a different file, md5 {md5(b'another file')}, not {md5(b'the file')}" in said
    assert not (tmp_path / "target").exists()
