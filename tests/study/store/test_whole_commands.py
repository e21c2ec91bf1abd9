"""Commands that are printed of a study: pasted into a shell, they find it again."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from study.store.study import StudyFolder, open_study
from tests.study.command_line import here
from tests.study.made import made_study

# A `calstudy` that shows its words as a shell hands them over.
SHOWS = 'calstudy() { printf "%s\\n" "$@"; }; '


def pasted(command: str) -> list[str]:
    done = subprocess.run(["sh", "-c", SHOWS + command], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    """In a folder whose name a shell would take apart."""
    return made_study(tmp_path / "Ada's $HOME; studies", "small", {"focal": []}, planned=2)


def test_a_pasted_command_finds_the_study(study: StudyFolder, tmp_path: Path) -> None:
    words = pasted(study.goes_on)
    assert words == ["run", "small", "--storage", str(study.directory.parent)]
    assert open_study(words[1], words[3]).directory == study.directory
    assert pasted(study.command("pareto", where="ece<=0.1"))[1:4] == [
        "small",
        "--where",
        "ece<=0.1",
    ]


def test_a_storage_where_commands_look_anyway_is_not_named(
    study: StudyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALSTUDY_STORAGE", str(study.directory.parent))
    assert study.goes_on == "calstudy run small"
    assert pasted(study.command("run", anywhere=True)) == [
        "run",
        "small",
        "--storage",
        str(study.directory.parent),
    ]
    monkeypatch.setenv("CALSTUDY_STORAGE", "s3://bucket")  # no folder: none is looked in
    assert "--storage" in study.goes_on
    monkeypatch.delenv("CALSTUDY_STORAGE")
    os.rename(study.directory.parent, tmp_path / "studies")
    monkeypatch.chdir(tmp_path)
    assert open_study("small", None).goes_on == "calstudy run small"
    monkeypatch.chdir("/")
    assert open_study("small", str(tmp_path / "studies")).goes_on.endswith(f"{tmp_path}/studies")


def test_a_confirmation_is_resumed_by_the_name_of_its_study(study: StudyFolder) -> None:
    confirming = replace(study, plain={**study.plain, "name": "small-confirm", "confirms": "small"})
    assert pasted(confirming.goes_on)[:2] == ["confirm", "small"]
    assert pasted(confirming.command("audit"))[:2] == ["audit", "small-confirm"]


def test_what_status_says_to_type_is_whole(study: StudyFolder) -> None:
    shown = here("status", "small", "--storage", study.directory.parent)
    (line,) = (line for line in shown.splitlines() if "Resume: " in line)
    assert pasted(line.partition("Resume: ")[2]) == pasted(study.goes_on)
