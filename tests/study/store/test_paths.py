"""Folders with odd names, and copies of a study."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from study.schema.errors import SpecError
from study.schema.uris import public_uri
from study.store.home import check_home
from study.store.recorded import Home, Recorded
from study.store.study import StudyFolder
from tests.study.command_line import here, here_json, write_spec


@pytest.mark.parametrize("name", ["a?b#c%20d e", "d%20e", "a?b"])
def test_a_path_that_mlflow_would_read_as_another_is_refused(tmp_path: Path, name: str) -> None:
    """It once put its database into the folder above, cut at the question mark."""
    storage = tmp_path / name
    storage.mkdir()
    spec = write_spec(storage / "small.yaml", methods=["focal"], trials=1, epochs=1)
    said = here("run", spec, "--storage", storage, check=2)
    assert (
        said.startswith("storage: MLflow cannot keep its database under a path with")
        and said.count("\n") == 1
    )
    assert "storage: MLflow cannot keep its database" in here(
        "doctor", spec, "--storage", storage, check=1
    )
    assert [path.name for path in tmp_path.rglob("*")] == [name, "small.yaml"]


@pytest.mark.slow
def test_other_odd_names_work(tmp_path: Path) -> None:
    storage = tmp_path / 'it\'s [50%] "so" #1 é'
    storage.mkdir()
    ledger = storage / "led ger?#%20.log"
    spec = write_spec(
        storage / "small.yaml", methods=["focal"], trials=1, epochs=1, ledger=str(ledger)
    )
    here("run", spec, "--storage", storage)
    assert here_json("status", "small", "--storage", storage)["methods"]["focal"]["complete"] == 1
    assert "small: clean" in here("audit", "small", "--storage", storage)
    here("report", "small", "--bootstrap", 0, "--storage", storage)
    assert (storage / "mlflow.db").is_file() and ledger.is_file()


def test_a_number_sign_in_a_database_path_is_shown() -> None:
    assert public_uri("sqlite:////data/run #1/mlflow.db") == "sqlite:////data/run #1/mlflow.db"
    assert public_uri("http://host/path#part?query") == "http://host/path"


@pytest.mark.parametrize(
    "too_long", ["n" * 300, "/".join(["n" * 200] * 25)], ids=["a name", "a path"]
)
def test_a_name_that_is_too_long_is_one_line(tmp_path: Path, too_long: str) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["focal"], trials=1, epochs=1)
    for words in (("run", spec), ("status", "small"), ("audit", "small")):
        said = here(*words, "--storage", tmp_path / too_long, check=2)
        assert said.count("\n") == 1 and "Traceback" not in said
    said = here(
        "run",
        write_spec(spec, ledger=f"{tmp_path}/{too_long}/l.log"),
        "--storage",
        tmp_path,
        check=2,
    )
    assert "File name too long" in said and said.count("\n") == 1


@pytest.mark.parametrize("refused", [True, False], ids=["cloned disk", "mounted twice"])
def test_a_cloned_disk_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """It has the inodes of the original, which is still there on a device of its own."""
    original, clone = tmp_path / "disk" / "small", tmp_path / "clone" / "small"
    devices = {original: 1, clone: 2 if refused else 1}
    stat = Path.stat
    monkeypatch.setattr(
        Path,
        "stat",
        lambda path, **how: (
            SimpleNamespace(st_ino=7, st_dev=devices[path])
            if path in devices
            else stat(path, **how)
        ),
    )
    study = StudyFolder(clone, {"name": "small"}, Recorded(home=Home(str(original), 7)))
    if refused:
        with pytest.raises(SpecError, match=f"is not the study's home, which is {original}"):
            check_home(study)
    else:
        check_home(study)
