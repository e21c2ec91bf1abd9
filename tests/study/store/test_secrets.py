"""Passwords in a file of their own: study.yaml is for colleagues too, and what it lacks is said where it is needed."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces import strict_yaml
from study.engine import run
from study.engine.search import LedgerSearch
from study.registry import verify
from study.schema.errors import LedgerError
from study.schema.uris import TrackingError
from study.store import removal
from study.store.ledger import Ledger, open_storage
from study.store.study import Study, open_study, write_study_file
from tests.study.command_line import ENVIRONMENT, here, write_spec
from tests.study.made import asked, made_study

PASSWORD = "hunter2-very-secret"
LEDGER = f"postgresql://maria:{PASSWORD}@127.0.0.1:9/optuna"
TRACKING = f"http://maria:{PASSWORD}@127.0.0.1:9"
DONE = ({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1, "time": 0.0}])


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return made_study(tmp_path, "small", {"focal": [DONE]})


def rewritten(study: Study, **keys: Any) -> Study:
    """The study as a run with other keys writes it."""
    recorded = {**study.recorded, **keys.pop("recorded", {})}
    write_study_file(study.directory, {**study.plain, **keys, "recorded": recorded})
    return open_study(str(study.directory), None)


def test_every_uri_is_whole_for_its_user_and_in_no_file_but_one(study: Study) -> None:
    option = f"mysql://maria@h/db?password={PASSWORD}"
    found = rewritten(study, ledger=LEDGER, tracking=TRACKING, recorded={"tracking": option})
    assert (found.ledger, found.tracking(None)) == (LEDGER, option)
    assert found.plain["tracking"] == TRACKING and found.recorded["id"] == "small"
    written = (study.directory / "study.yaml").read_bytes()
    assert PASSWORD.encode() not in written and b"maria" not in written
    plain = strict_yaml.read(study.directory / "study.yaml")
    assert (plain["ledger"], plain["tracking"]) == (
        "postgresql://***@127.0.0.1:9/optuna",
        "http://***@127.0.0.1:9",
    )
    assert [mode(study.directory / name) for name in ("study.yaml", "secrets.yaml")] == [
        0o644,
        0o600,
    ]

    # Another server without a password: there is no secret left, and no file.
    assert (
        rewritten(found, ledger=None, tracking="http://h:1", recorded={"tracking": None}).tracking(
            None
        )
        == "http://h:1"
    )
    assert not (study.directory / "secrets.yaml").exists()


def test_a_uri_hidden_for_its_query_alone_is_still_known(study: Study) -> None:
    """As an earlier version did."""
    whole = "postgresql://maria@127.0.0.1:9/optuna?sslmode=require"
    rewritten(study, ledger="postgresql://***@127.0.0.1:9/optuna")
    (study.directory / "secrets.yaml").write_text(f"ledger: {whole}")
    found = open_study(str(study.directory), None)
    assert found.ledger == rewritten(found).ledger == whole
    assert whole in (study.directory / "study.yaml").read_text()


def test_a_study_made_before_goes_on_and_is_rewritten(study: Study) -> None:
    file = study.directory / "study.yaml"
    plain = strict_yaml.read(file)
    file.write_text(strict_yaml.dump({**plain, "tracking": TRACKING}))
    file.chmod(0o600)
    found = open_study(str(study.directory), None)
    assert found.tracking(None) == TRACKING
    assert rewritten(found).tracking(None) == TRACKING
    assert PASSWORD not in file.read_text() and mode(file) == 0o644


@pytest.mark.parametrize("lost", ["missing", "of another server", "no YAML", "no mapping"])
def test_what_is_missing_is_said_where_it_is_needed(study: Study, lost: str) -> None:
    rewritten(study, tracking=TRACKING)
    secrets = study.directory / "secrets.yaml"
    if lost == "missing":
        secrets.unlink()
    else:
        other = {"of another server": f"tracking: {TRACKING}8", "no YAML": "{", "no mapping": "3"}
        secrets.write_text(other[lost])
    found = open_study(str(study.directory), None)
    assert [record.state for record in found.all_records()] == [
        "complete"
    ]  # which needs no tracking
    assert found.tracking("http://given:1") == "http://given:1"
    with pytest.raises(
        TrackingError, match=r"^tracking: http://\*\*\*@.* in secrets\.yaml .*--tracking\.$"
    ) as refused:
        found.tracking(None)
    assert "\n" not in str(refused.value)
    rewritten(study, ledger=LEDGER)
    secrets.unlink()
    words = r"^ledger: postgresql://\*\*\*@.*whole URI as `ledger` in study\.yaml, or set PGPASSWORD and .* the URL\.$"
    with pytest.raises(LedgerError, match=words):
        open_study(str(study.directory), None).records()


def test_who_cannot_read_them_goes_on_with_the_whole_uri(study: Study) -> None:
    """Whether it is the study's is told by its mark in the database."""
    rewritten(study, ledger=LEDGER, recorded={"ledger_made": True})
    (study.directory / "secrets.yaml").unlink()
    for mark in ("small", "another"):
        url = f"sqlite:///{study.directory.parent / mark}.db"
        ledger = Ledger(open_storage(study.directory, url), "small", mark)
        ledger.open("focal", study.objectives)
        asked(ledger, "focal")
        spec = replace(study.spec, ledger=url)
        if mark == "small":
            found = run._stored(spec, study.directory)
            assert found is not None and [record.name for record in found.all_records()] == [
                "focal/0000"
            ]
        else:
            with pytest.raises(
                LedgerError,
                match=r"is of another study, .* study\.yaml names postgresql://127\.0\.0\.1",
            ):
                run._stored(spec, study.directory)


def test_what_another_user_keeps_stays(study: Study) -> None:
    """`prune` by a colleague rewrites study.yaml, whose secrets they cannot read."""
    rewritten(study, tracking=TRACKING)
    secrets = study.directory / "secrets.yaml"
    before = secrets.read_bytes()
    secrets.write_bytes(b"{")  # as good as not readable
    found = open_study(str(study.directory), None)
    rewritten(found, recorded={"pruned": True})
    assert secrets.read_bytes() == b"{"
    secrets.write_bytes(before)
    assert open_study(str(study.directory), None).tracking(None) == TRACKING


def test_the_process_that_verifies_has_no_password_on_its_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[Any] = []

    def started(command: Any, **how: Any) -> Any:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "not now")

    monkeypatch.setattr(verify.subprocess, "run", started)
    assert "not now" in str(verify.verify("models:/m/1", TRACKING, Path("storage")).problem)
    assert any("study.registry.verify" in command for command in commands)
    assert PASSWORD not in repr(commands)


@pytest.mark.slow
def test_a_run_keeps_its_password_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "TRACKING_PATIENCE", 0.1)
    spec = write_spec(tmp_path / "small.yaml", methods=["focal"], trials=1, tracking=TRACKING)
    storage, given, suggest = tmp_path / "storage", [], LedgerSearch.suggest
    monkeypatch.setattr(
        LedgerSearch, "suggest", lambda *one: given.append(suggest(*one)) or given[-1]
    )
    shown = here("run", spec, "--storage", storage, check=75)
    assert "1/1 trials" in shown and PASSWORD not in shown
    assert "focal/0000" in str(given) and PASSWORD not in str(
        given
    )  # Ray shows what a trial is given
    holding = [
        path.name
        for path in storage.rglob("*")
        if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
    assert holding == ["secrets.yaml"]
    assert mode(storage / "small" / "secrets.yaml") == 0o600
    assert {mode(path) for path in (storage / "small").rglob("*") if path.is_file()} == {
        0o600,
        0o644,
    }
    assert open_study("small", str(storage)).tracking(None) == TRACKING


# Once as oneself, so that all is imported: another user may not read where Python is. Then as a colleague.
COLLEAGUE = """
import contextlib, io, os, sys
from study.cli import main

def told():
    shown, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main(sys.argv[2:])
    return shown.getvalue() + said.getvalue()

told()
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
else:
    os.chmod(sys.argv[1], 0)
print(told(), end="")
"""


@pytest.mark.slow
def test_a_colleague_sees_the_status(study: Study) -> None:
    """In a process of another user, who may not read secrets.yaml; without root, of one who may not either."""
    rewritten(study, tracking=TRACKING)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        shutil.copytree(study.directory, folder / "small")

        def colleague(*words: object) -> str:
            secrets = folder / "small" / "secrets.yaml"
            secrets.chmod(0o600)
            command = [
                sys.executable,
                "-c",
                COLLEAGUE,
                str(secrets),
                *map(str, words),
                "--storage",
                made,
            ]
            return subprocess.run(
                command, capture_output=True, text=True, env=ENVIRONMENT, check=True
            ).stdout

        shown = colleague("status", "small")
        assert "focal" in shown and "secrets.yaml" not in shown
        refused = colleague("sync", "small")
        assert refused.startswith(
            "tracking: http://***@127.0.0.1:9 has its user and password in secrets.yaml"
        )
        assert refused.count("\n") == 1


def test_a_folder_that_is_no_deletion_is_let_alone(study: Study) -> None:
    other = study.directory.with_name(f"{study.name}.deleting")
    other.mkdir()
    (other / "notes.txt").touch()
    assert [each.directory for each in removal.to_delete(study.directory, "-confirm")] == [
        study.directory
    ]
    assert (other / "notes.txt").exists()


def test_what_a_kill_left_of_secrets_goes_with_the_next_write(study: Study) -> None:
    (study.directory / "secrets.yaml.0123abcd.partial").write_text(
        "ledger: postgresql://me:pw@host/db"
    )
    write_study_file(study.directory, study.plain)
    assert not list(study.directory.glob("*.partial"))


@pytest.mark.parametrize("killed_before", ["study.yaml", "secrets.yaml"])
def test_a_deletion_killed_at_the_last_files_is_completed(
    study: Study, monkeypatch: pytest.MonkeyPatch, killed_before: str
) -> None:
    """What a killed deletion leaves has the password of the ledger, or nothing to delete there."""
    deleted: list[str] = []
    monkeypatch.setattr(
        removal, "delete_labels", lambda directory, ledger, *rest: deleted.append(ledger)
    )
    monkeypatch.setattr(removal, "check_home", lambda study: None)
    monkeypatch.setattr(removal, "driver_lock", lambda *of, **how: nullcontext())  # no server
    aside = removal.set_aside(rewritten(study, ledger=LEDGER))

    def kill(*where: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if killed_before == "study.yaml":
            patch.setattr(Path, "unlink", kill)
        else:
            rmtree = shutil.rmtree
            patch.setattr(
                shutil,
                "rmtree",
                lambda folder: kill() if folder == aside.directory else rmtree(folder),
            )
        removal.remove(aside)
    again = removal.to_delete(study.directory, "-confirm")
    assert [each.ledger for each in again] == [LEDGER if killed_before == "study.yaml" else None]
    assert (aside.directory / "secrets.yaml").is_file()  # it is listed before the user says yes
    for each in again:
        removal.remove(each)
    assert not aside.directory.exists() and set(deleted) == {LEDGER}
