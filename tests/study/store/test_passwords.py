"""Passwords: none is written out in a study or a command line, and one that a variable or a file
holds is recorded nowhere."""

import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from study.cli import calstudy
from study.engine import run
from study.engine.search import LedgerSearch
from study.registry import verification
from study.store.study import StudyFolder, open_study, write_study_file
from tests.study.command_line import here, write_spec
from tests.study.made import made_study

PASSWORD = "hunter2-very-secret"
LEDGER = f"postgresql://maria:{PASSWORD}@127.0.0.1:9/optuna"
TRACKING = f"http://maria:{PASSWORD}@127.0.0.1:9"
DONE = ({"accuracy": 0.9, "ece": 0.1}, [{"epoch": 1, "time": 0.0}])


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    return made_study(tmp_path, "small", {"focal": [DONE]})


def refused(said: str, *parts: str) -> None:
    assert said.count("\n") == 1 and "Traceback" not in said, said
    assert all(part in said for part in parts), said
    assert PASSWORD not in said and "maria" not in said, said


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"ledger": LEDGER}, ("ledger: postgresql://127.0.0.1:9/optuna is a URL", "or null.")),
        (
            {"ledger": f"postgresql://h/db?user=maria&password={PASSWORD}"},
            ("ledger: postgresql://h/db is a URL, and a ledger is a file. Write the path of",),
        ),
        (
            {"tracking": TRACKING},
            (
                "tracking: http://127.0.0.1:9 ",
                "MLFLOW_TRACKING_PASSWORD",
                "~/.mlflow/credentials",
                "name a file or an environment variable that holds the URI.",
            ),
        ),
        ({"tracking": f"https://{PASSWORD}@h"}, ("tracking: https://h ", "a password or token")),
        ({"tracking": LEDGER}, ("tracking: postgresql://", "PGPASSWORD", "name a file")),
    ],
)
def test_a_spec_with_one_is_refused(
    tmp_path: Path, keys: dict[str, str], words: tuple[str, ...]
) -> None:
    spec, storage = write_spec(tmp_path / "small.yaml", **keys), tmp_path / "storage"
    for command in (("plan", spec), ("run", spec), ("doctor", spec)):
        refused(here(*command, "--storage", storage, check=2), "small.yaml: ", *words)
    assert not storage.exists()


def takes(command: str, option: str) -> bool:
    found = calstudy.get_command(click.Context(calstudy), command)
    return found is not None and option in {parameter.name for parameter in found.params}


@pytest.mark.parametrize(
    "command",
    [name for name in calstudy.list_commands(click.Context(calstudy)) if takes(name, "tracking")],
)
def test_a_command_line_with_one_is_refused(tmp_path: Path, command: str) -> None:
    words = () if command == "doctor" else ("models:/m/1" if command == "verify" else "small.yaml",)
    given = (*words, "--storage", tmp_path, "--tracking", TRACKING)
    said = here(command, *given, check=2)
    refused(said, "--tracking: http://127.0.0.1:9 ", "environment variable that holds the URI.")
    assert not list(tmp_path.iterdir())


def test_a_user_alone_is_no_password(tmp_path: Path) -> None:
    tracking = "postgresql://maria@h/mlflow?sslmode=require"
    here("plan", write_spec(tmp_path / "small.yaml", tracking=tracking))


@pytest.mark.parametrize(
    "url", ["sqlite:////x.db", "postgresql://127.0.0.1:9/db", "mysql+pymysql://h/db", "redis://h"]
)
def test_a_ledger_in_a_database_is_refused(study: StudyFolder, tmp_path: Path, url: str) -> None:
    spec = write_spec(tmp_path / "other.yaml", name="other", ledger=url)
    for command in ("plan", "run", "doctor"):
        said = here(command, spec, "--storage", tmp_path / "storage", check=2)
        assert said == (
            f"other.yaml: ledger: {url} is a URL, and a ledger is a file. Write the path of a file"
            " on this machine's own disk, or null.\n"
        )
    # A study of the time when it could be one.
    file = study.directory / "study.yaml"
    write_study_file(study.with_ledger(url))
    before = file.read_bytes()
    for command in ("status", "trials", "pareto", "answer", "audit", "sync", "run", "export"):
        option = ("--name", "m") if command == "export" else ()
        said = here(command, study.directory, *option, check=2)
        made_by = r"calstudy \S+ \(commit \S+\) or an earlier one"
        assert said.count("\n") == 1 and said.endswith(
            "Use that version, or start again under a new name.\n"
        )
        assert f"study.yaml: ledger: is in a database, {url}: the study is of " in said
        assert re.search(made_by, said)
    assert file.read_bytes() == before


def test_what_a_kill_left_of_a_study_file_goes_with_the_next_write(study: StudyFolder) -> None:
    (study.directory / "study.yaml.0123abcd.partial").write_text("name: sma")
    write_study_file(study)
    assert not list(study.directory.glob("*.partial"))


def test_the_process_that_verifies_has_no_password_on_its_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[Any] = []

    def started(command: Any, **how: Any) -> Any:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "not now")

    monkeypatch.setattr(verification.subprocess, "run", started)
    assert "not now" in str(verification.verify("models:/m/1", TRACKING, Path("storage")).problem)
    assert any("study.registry.verify" in command for command in commands)
    assert PASSWORD not in repr(commands)


@pytest.mark.slow
@pytest.mark.parametrize("in_spec", [False, True])
def test_what_a_variable_holds_is_recorded_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_spec: bool
) -> None:
    monkeypatch.setattr(run, "TRACKING_PATIENCE", 0.1)
    monkeypatch.setenv("MY_TRACKING", TRACKING)
    keys = {"tracking": "MY_TRACKING"} if in_spec else {}
    option = () if in_spec else ("--tracking", "MY_TRACKING")
    spec = write_spec(tmp_path / "small.yaml", methods=["focal"], trials=1, **keys)
    storage, given, suggest = tmp_path / "storage", [], LedgerSearch.suggest
    monkeypatch.setattr(
        LedgerSearch, "suggest", lambda *one: given.append(suggest(*one)) or given[-1]
    )
    shown = here("run", spec, "--storage", storage, *option, check=75)
    assert "1/1 trials" in shown and "tracking: http://127.0.0.1:9\n" in shown
    assert PASSWORD not in shown and "maria" not in shown
    # Ray shows what a trial is given.
    assert "focal/0000" in str(given) and PASSWORD not in str(given)
    written = [path for path in storage.rglob("*") if path.is_file()]
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []
    assert open_study("small", str(storage)).tracking(None) == TRACKING
