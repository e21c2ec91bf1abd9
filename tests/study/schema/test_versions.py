"""The commit that a trial records."""

import subprocess
from pathlib import Path

import pytest

from study.schema.versions import git_commit


def test_the_commit_is_read_without_running_what_the_repository_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own settings may name a monitor of files and filters of their
    contents; hooks lie in it."""

    def git(*words: str) -> str:
        named = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
        return subprocess.run(
            ["git", *named, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    ran = tmp_path / "ran"
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    assert git_commit() is None
    git("init", "--quiet")
    assert git_commit() is None
    file = Path("notes.txt")
    file.write_text("one")
    Path(".gitattributes").write_text("*.txt filter=a=b\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    git("config", "core.fsmonitor", f"echo monitor >> {ran}; false")
    git("config", "filter.a=b.clean", f"echo filter >> {ran}; cat")
    git("config", "filter.a=b.required", "true")
    hook = Path(".git/hooks/post-index-change")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho hook >> {ran}\n")
    hook.chmod(0o755)
    file.write_text("two")  # of the same size: git must read it
    assert git_commit() == git("rev-parse", "HEAD") + "+"
    file.write_text("one")
    assert git_commit() == git("rev-parse", "HEAD")
    assert not ran.exists()
    git("status")
    assert {"monitor", "filter"} <= {*ran.read_text().split()}  # which git alone would have run
