"""`--tracking` by the name of a file or an environment variable: what is
recorded, and what is said."""

from pathlib import Path

import pytest

from search_spaces import strict_yaml
from tests.study.command_line import here, write_spec
from tests.study.made import unanswered as unanswered  # fixture


@pytest.mark.slow
@pytest.mark.usefixtures("unanswered")
def test_the_name_is_recorded_and_never_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    database = tmp_path / "else where" / "mlflow.db"
    database.parent.mkdir()
    uri, file, storage = f"sqlite:///{database}?timeout=77", tmp_path / "uri", tmp_path / "studies"
    file.write_text(f"{uri}\n")
    monkeypatch.setenv("MY_TRACKING", uri)
    spec = write_spec(tmp_path / "small.yaml", methods=["focal"], trials=1, epochs=1)
    (tmp_path / "in_spec").mkdir()
    in_spec = write_spec(
        tmp_path / "in_spec" / "small.yaml",
        methods=["focal"],
        trials=1,
        epochs=1,
        tracking="MY_TRACKING",
    )
    unset = "the environment variable MY_TRACKING is not set"
    for words, recorded, lacking in (
        ((spec, "--tracking", "uri"), (str(file), None), f"there is no file {file}"),
        ((spec, "--tracking", "MY_TRACKING"), ("MY_TRACKING", None), unset),
        ((in_spec,), (None, "MY_TRACKING"), unset),
    ):
        shown = here("run", *words, "--storage", storage)
        assert f"tracking: sqlite:///{database}\n" in shown and not (storage / "mlflow.db").exists()
        written = strict_yaml.read(storage / "small" / "study.yaml")
        assert (written["recorded"]["tracking"], written["tracking"]) == recorded
        everything = [path for path in tmp_path.rglob("*") if path.is_file() and path != file]
        assert not [path for path in everything if uri.encode() in path.read_bytes()]
        assert "0 trials uploaded, 1 already there" in here("sync", "small", "--storage", storage)
        with monkeypatch.context() as patch:
            patch.delenv("MY_TRACKING")
            file.rename(tmp_path / "away")
            shown = here("sync", "small", "--storage", storage, check=2)
            assert shown.startswith(f"tracking: {lacking}. ") and shown.count("\n") == 1
            (tmp_path / "away").rename(file)
    shown = here("export", "small", "--storage", storage, "--name", "m")
    assert "calstudy verify models:/m/1 --tracking MY_TRACKING\n" in shown
