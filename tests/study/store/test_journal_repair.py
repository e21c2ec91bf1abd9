"""Repair touches ledgers only: what is no journal of Optuna's is refused in one line, and not
a byte of it changes."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from search_spaces import strict_yaml
from study.schema.errors import LedgerError
from study.store.driver_lock import driver_lock
from study.store.ledger import open_storage
from study.store.ledger_reader import LedgerReader
from tests.study.command_line import here
from tests.study.made import made_study

pytestmark = pytest.mark.timeout(60)  # it would wait for ever, or fill the memory

SECRETS = {
    "one line": b"hunter2\n",
    "no end of line": b"hunter2",
    "a last line that is none": b"first\nsecond\nhunter2",
    "JSON": b'{"password":"hunter2"}\n',
    "one op_code": b'{"op_code":"x","worker_id":"hunter2"}\n',
    "half JSON": b'{"op_code":7,"hunter2',
    "zeros": bytes(4096),
}


def files_in(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and mode of every file but the lock of the study itself."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != "driver.lock"]
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode) for path in found
    }


def refuses(act: Callable[[], object], why: str) -> None:
    with pytest.raises(LedgerError, match=why) as refused:
        act()
    assert "\n" not in str(refused.value)


def locked(directory: Path, ledger: str | None) -> None:
    with driver_lock(directory, ledger):
        pass


@pytest.mark.parametrize("kind", SECRETS)
def test_what_is_no_journal_is_left_as_it_is(tmp_path: Path, kind: str) -> None:
    notes, study = tmp_path / "notes" / "notes.txt", tmp_path / "small"
    notes.parent.mkdir()
    study.mkdir()
    notes.write_bytes(SECRETS[kind])
    before = files_in(tmp_path)
    for act in (lambda: open_storage(study, str(notes)), lambda: locked(study, str(notes))):
        refuses(act, "notes.txt is no ledger: its first line is no record of Optuna's")
        assert files_in(tmp_path) == before
    refuses(
        lambda: LedgerReader(study, str(notes), "small", ["focal"]).records(),
        "notes.txt is no ledger",
    )


@pytest.mark.parametrize("kind", SECRETS)
def test_a_ledger_of_a_study_is_no_link(tmp_path: Path, kind: str) -> None:
    """It was emptied, and its one line was copied into the study's folder for all to read."""
    secret, study = tmp_path / "secrets" / "token", tmp_path / "small"
    secret.parent.mkdir()
    study.mkdir()
    secret.write_bytes(SECRETS[kind])
    secret.chmod(0o600)
    (study / "ledger.log").symlink_to(secret)
    before = files_in(tmp_path)
    for act in (lambda: open_storage(study, None), lambda: locked(study, None)):
        refuses(act, "ledger.log is a symbolic link, not a file")
        assert files_in(tmp_path) == before


def test_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "ledger.log").symlink_to(tmp_path / "made")
    refuses(lambda: open_storage(tmp_path, None), "is a symbolic link")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "command", [("status",), ("audit",), ("delete", "--yes"), ("slim", "--yes")]
)
def test_no_command_changes_what_a_study_calls_its_ledger(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    study = made_study(tmp_path / "studies", "small", {"focal": []}).directory
    notes = tmp_path / "notes" / "notes.txt"
    notes.parent.mkdir()
    notes.write_bytes(b"first\nhunter2")
    plain = strict_yaml.read(study / "study.yaml")
    (study / "study.yaml").write_text(strict_yaml.dump({**plain, "ledger": str(notes)}))
    said = here(*command[:1], "small", *command[1:], "--storage", tmp_path / "studies", check=2)
    assert f"ledger: {notes} is no ledger" in said and "Traceback" not in said
    assert files_in(notes.parent) == {"notes.txt": (b"first\nhunter2", notes.stat().st_mode)}
    assert (study / "study.yaml").is_file()


def put(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        monkeypatch.chdir(path.parent)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "socket"])
def test_what_is_no_file_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, named: bool
) -> None:
    path = tmp_path / "ledger.log"
    put(path, kind, monkeypatch)
    ledger = str(path) if named else None
    found = f"ledger.log is a {kind if named or kind != 'device' else 'symbolic link'}, not a file"
    refuses(lambda: open_storage(tmp_path, ledger), found)
    refuses(lambda: locked(tmp_path, ledger), found)
    refuses(lambda: LedgerReader(tmp_path, ledger, "small", ["focal"]).records(), found)


def test_a_file_too_large_for_the_memory_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_storage(tmp_path, None)
    with (tmp_path / "ledger.log").open("r+b") as file:
        file.truncate(2**40)  # a hole, which takes no disk
    refuses(
        lambda: open_storage(tmp_path, None), r"has 1,099,512 MB, more than the .* MB that are read"
    )


# ---- what is repaired ----------------------------------------------------------------------------


def journal(folder: Path, name: str = "small") -> Path:
    return made_study(folder, name, {"focal": []}).directory / "ledger.log"


def test_a_torn_first_record_is_cut(tmp_path: Path) -> None:
    log = journal(tmp_path)
    whole = log.read_bytes()
    first = whole.splitlines(keepends=True)[0]
    for length in (0, 1, 5, 20, 60, len(first) - 1):
        log.write_bytes(first[:length])
        open_storage(log.parent, None)
        assert log.read_bytes() == b""


def test_what_is_cut_keeps_the_mode(tmp_path: Path) -> None:
    log = journal(tmp_path)
    whole = log.read_bytes()
    for number, mode in enumerate((0o600, 0o640), start=1):
        log.write_bytes(whole + b"garbage\n")
        log.chmod(mode)
        open_storage(log.parent, None)
        kept = log.with_name(f"ledger.log.cut-{number}")
        assert kept.read_bytes() == b"garbage\n" and log.read_bytes() == whole
        assert [stat.S_IMODE(path.stat().st_mode) for path in (log, kept)] == [mode, mode]


def test_a_cut_part_is_not_written_through_a_link(tmp_path: Path) -> None:
    log = journal(tmp_path)
    log.with_name("ledger.log.cut-1").symlink_to(tmp_path / "nowhere")
    log.write_bytes(log.read_bytes() + b"garbage\n")
    open_storage(log.parent, None)
    assert (
        log.with_name("ledger.log.cut-2").read_bytes() == b"garbage\n"
        and not (tmp_path / "nowhere").exists()
    )


@pytest.mark.parametrize("target", [None, "/elsewhere/small/ledger.log", "notes.txt", "missing"])
def test_a_lock_of_optunas_is_not_waited_for(tmp_path: Path, target: str | None) -> None:
    """Left by a driver of an earlier version, which took one for each write, or something else in
    its place: Optuna would wait for half a minute or for ever, and then remove it."""
    log = journal(tmp_path)
    lock = log.with_name("ledger.log.lock")
    if target is None:
        lock.write_text("mine")
    else:
        lock.symlink_to(target)
    before = lock.lstat()
    storage = open_storage(log.parent, None)
    storage.set_study_user_attr(storage.get_study_id_from_name("small/focal"), "said", 1)
    assert b'"said":1' in log.read_bytes().splitlines()[-1]
    assert lock.lstat() == before
