"""A command reads a study's own file once, and again only if that has changed since."""

from pathlib import Path

import pytest

from study.store import study as store
from study.store.study import open_directory, reopened, write_study_file
from tests.study.command_line import here, write_spec
from tests.study.made import made_study


def test_a_command_opens_the_study_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["focal"], trials=1, epochs=1)
    here("run", spec, "--storage", tmp_path)
    read: list[str] = []
    parse = store._parse_study
    monkeypatch.setattr(
        store, "_parse_study", lambda file, text: read.append(file.parent.name) or parse(file, text)
    )
    for command in ("run", "plan"):
        here(command, spec, "--storage", tmp_path)
        assert read == ["small"]
        read.clear()


def test_what_another_wrote_meanwhile_is_read(tmp_path: Path) -> None:
    """The driver before this one, while this one waited for its turn."""
    directory = made_study(tmp_path, "small", {"focal": []}).directory
    assert reopened(tmp_path / "none", None) is None
    opened = open_directory(directory, "small")
    assert reopened(directory, opened) is opened
    write_study_file(opened.with_ledger("/elsewhere/ledger.log"))
    again = reopened(directory, opened)
    assert again is not None and again.ledger == "/elsewhere/ledger.log"
