"""Only regular files, of a size that fits: what would hang or kill its reader is
refused before it is read."""

import io
import os
import socket
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from search_spaces import strict_yaml
from trainables.files.arrays import read_arrays
from trainables.files.atomic import append
from trainables.files.digest import damaged_files, file_digest, sampled_digest
from trainables.files.regular import NotAFile, open_regular, read_text
from trainables.files.saved import digested_payload
from trainables.outputs.attempts import epochs_reached
from trainables.outputs.classifier import Classifier
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

pytestmark = pytest.mark.timeout(60)  # a pipe would be waited for


@pytest.fixture(params=["pipe", "socket", "folder", "device"])
def no_file(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    path = tmp_path / "file"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "device":
        return Path("/dev/zero")
    else:
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("file")
    return path


def test_each_reader_refuses_what_is_no_file(no_file: Path) -> None:
    for read in (open_regular, read_text, file_digest, sampled_digest):
        with pytest.raises(NotAFile, match=r" is a (pipe|socket|folder|device), not a file$"):
            read(no_file)
    with pytest.raises(FieldError):
        strict_yaml.read(no_file)
    with pytest.raises(
        FieldError, match=r" is a (pipe|socket|folder|device), not a file\. Give arrays\.$"
    ):
        read_arrays(no_file, "arrays")


def test_a_link_is_followed_or_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert read_text(tmp_path / "link") == "text"
    with pytest.raises(NotAFile, match="is a symbolic link"):
        open_regular(tmp_path / "link", follow=False)


def test_a_file_may_be_too_large(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(101))
    with pytest.raises(NotAFile, match="has 0 MB, more than"):
        open_regular(tmp_path / "file", most=100)
    assert len(open_regular(tmp_path / "file", most=101).read()) == 101


def test_nothing_waits_for_a_pipe(tmp_path: Path) -> None:
    """A log counts as none; the record of a prepared data set as damaged; what nobody
    reads is not written."""
    (tmp_path / "attempt-1").mkdir()
    for name in ("attempt-1/log", "meta.json"):
        os.mkfifo(tmp_path / name)
    assert epochs_reached([tmp_path / "attempt-1"]) == 0
    with pytest.raises(OSError, match="is a pipe"):
        damaged_files(tmp_path)
    with pytest.raises(OSError, match="No such device"):
        append(tmp_path / "attempt-1" / "log", b"epoch=1\n")


# ---- what unpacks to more than it is -------------------------------------------------------------

MACHINE = 64 * 2**20  # bytes of memory that this machine is said to have


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("arrays", "saved"):
        monkeypatch.setattr(f"trainables.files.{module}.memory", lambda: MACHINE, raising=False)


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize(
    ("name", "kind"), [("logits", "float16"), ("logits", "float32"), ("probs", "float32")]
)
def test_the_copies_that_evaluation_makes_are_counted(tmp_path: Path, name: str, kind: str) -> None:
    """A few kB that unpack to less than half of the memory, and whose float64 copies exceed it."""
    file, samples = tmp_path / "p.npz", 100_000
    value = 0.1 if name == "probs" else 0.2
    labels = np.zeros(samples, np.int8)
    np.savez_compressed(file, **{name: np.full((samples, 10), value, kind), "labels": labels})
    assert file.stat().st_size < 20_000 and samples * 10 * 8 * 2 < MACHINE < samples * 10 * 8 * 10
    with pytest.raises(
        FieldError, match=r"arrays and their use take 0\.1 GB, this machine's memory is 0\.1 GB"
    ):
        Predictions.load(file)
    np.savez_compressed(
        file, **{name: np.full((samples // 10, 10), value, kind), "labels": labels[: samples // 10]}
    )
    assert len(Predictions.load(file).labels) == samples // 10


def classifier() -> Classifier:
    network: Any = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return Classifier(network, (0.0,), (1.0,))


def rewritten(file: Path, method: int, repeated: int = 1) -> None:
    """The zip with its records compressed, or listed more than once."""
    with zipfile.ZipFile(file) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, record in records.items():
            archive.writestr(name, record)
        archive.filelist *= repeated
    file.write_bytes(content.getvalue())


def test_weights_are_loaded_as_torch_stores_them(tmp_path: Path) -> None:
    file, made = tmp_path / "model.pt", classifier()
    made.save(file)
    loaded = classifier().load(file)
    assert all(
        torch.equal(one, two)
        for one, two in zip(made.parameters(), loaded.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    ("method", "repeated", "problem"),
    [
        (zipfile.ZIP_DEFLATED, 1, "has a compressed record"),
        (zipfile.ZIP_BZIP2, 1, "has a compressed record"),
        (zipfile.ZIP_STORED, 9, "has records of"),
    ],
)
def test_a_record_that_torch_would_inflate_is_refused(
    tmp_path: Path, method: int, repeated: int, problem: str
) -> None:
    file = tmp_path / "model.pt"
    classifier().save(file)
    rewritten(file, method, repeated)
    with pytest.raises(FieldError, match=rf"model\.pt: {problem}"):
        classifier().load(file)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no zip", b"\x80\x02}q\x00."])
def test_what_torch_did_not_save_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(FieldError, match=r"model\.pt: is no file of torch\.save"):
        classifier().load(tmp_path / "model.pt")


@pytest.mark.usefixtures("small_machine")
def test_weights_must_fit_in_the_memory(tmp_path: Path) -> None:
    torch.save({"whole": torch.zeros(MACHINE // 4 + 1)}, tmp_path / "model.pt")
    with pytest.raises(FieldError, match=r"takes 0\.1 GB, this machine's memory is 0\.1 GB"):
        classifier().load(tmp_path / "model.pt")


def test_a_checkpoint_holds_no_more_than_its_file(tmp_path: Path) -> None:
    """A tensor of one byte, repeated: 256 bytes would become a terabyte."""
    torch.save(
        {"state": torch.zeros(1, dtype=torch.uint8).expand(2**40), "sha256": ""},
        tmp_path / "last.pt",
    )
    assert digested_payload(tmp_path / "last.pt") is None
