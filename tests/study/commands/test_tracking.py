"""`--tracking` by the name of a file or an environment variable: what is recorded, and what is said."""

import os
from pathlib import Path

import pytest

from search_spaces import strict_yaml
from tests.study.command_line import here, write_spec


def test_a_password_in_a_command_line_earns_one_line(tmp_path: Path) -> None:
    words = ("audit", "none", "--storage", tmp_path, "--tracking")
    first, second, *rest = here(*words, "http://maria:hunter2@127.0.0.1:9", check=2).splitlines()
    assert first.startswith("warning: --tracking: other users of this machine can read a command line")
    assert "name of a file or of an environment variable" in first and "hunter2" not in first
    assert second.startswith("none: no study at") and not rest
    assert "warning" not in here(*words, "http://127.0.0.1:9", check=2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "variable", "spec"])
def test_the_name_is_recorded_and_never_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    database = tmp_path / "else where" / "mlflow.db"
    database.parent.mkdir()
    uri, file, storage = f"sqlite:///{database}?timeout=77", tmp_path / "uri", tmp_path / "studies"
    file.write_text(f"{uri}\n")
    monkeypatch.setenv("MY_TRACKING", uri)
    given, name = {"file": ("uri", str(file)), "variable": ("MY_TRACKING",) * 2, "spec": (None, str(file))}[kind]
    spec = write_spec(
        tmp_path / "small.yaml", methods=["focal"], trials=1, epochs=1, **({} if given else {"tracking": name})
    )
    shown = here("run", spec, "--storage", storage, *(("--tracking", given) if given else ()))
    assert f"tracking: sqlite:///{database}\n" in shown and database.is_file() and not (storage / "mlflow.db").exists()
    written = strict_yaml.read(storage / "small" / "study.yaml")
    assert (written["recorded"]["tracking"], written["tracking"]) == ((name, None) if given else (None, name))
    for folder, _, files in os.walk(tmp_path):
        for found in files:
            if Path(folder, found) != file:
                assert uri.encode() not in Path(folder, found).read_bytes(), found
    monkeypatch.chdir(storage)
    assert "clean" in here("audit", "small", "--storage", storage)
    assert "0 trials uploaded, 1 already there" in here("sync", "small", "--storage", storage)
    shown = here("export", "small", "--storage", storage, "--name", "m")
    assert f"calstudy verify models:/m/1 --tracking {name}\n" in shown
    file.unlink()
    monkeypatch.delenv("MY_TRACKING")
    for words in (("audit", "small"), ("sync", "small"), ("export", "small", "--name", "m")):
        shown = here(*words, "--storage", storage, check=2)
        held = "the environment variable MY_TRACKING is not set" if kind == "variable" else f"there is no file {file}"
        assert shown.startswith(f"tracking: {held}. ") and shown.count("\n") == 1
    assert "1 already there" in here("sync", "small", "--storage", storage, "--tracking", uri)
