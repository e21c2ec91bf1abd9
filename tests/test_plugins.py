"""The code of a user's own: what is run is what is recorded."""

import importlib
import importlib.util
import marshal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainables import methods
from trainables.plugins import extension_digests, finding_for, use_extensions, used_files


@pytest.fixture(autouse=True)
def own_names_only() -> Iterator[None]:
    yield
    use_extensions(None)


def extended(folder: Path, **sources: str) -> Path:
    (folder / "methods").mkdir()
    for name, source in sources.items():
        (folder / "methods" / f"{name}.py").write_text(source)
    use_extensions(folder)
    return folder / "methods"


def test_bytecode_beside_a_file_does_not_run_instead_of_it(tmp_path: Path) -> None:
    file = extended(tmp_path, mine="class Mine:\n    of = 'the file'\n") / "mine.py"
    cached = Path(importlib.util.cache_from_source(str(file)))
    cached.parent.mkdir()
    # PEP 552: flags 1 say that Python shall not compare it with the file.
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
    cached.write_bytes(
        head + marshal.dumps(compile("class Mine:\n    of = 'the bytecode'\n", str(file), "exec"))
    )
    assert methods.find("mine").of == "the file"


def test_no_bytecode_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    folder = extended(tmp_path, mine="class Mine: pass\n")
    assert methods.find("mine").__module__ == "calstudy_extensions.methods.mine"
    assert [path.name for path in folder.iterdir()] == ["mine.py"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    extended(
        tmp_path,
        outer="from trainables import methods\nclass Outer(methods.find('inner')): pass\n",
        late=(
            "from trainables import methods\n"
            "class Late:\n"
            "    def loss(self): return methods.find('outer')\n"
        ),
        inner="class Inner: pass\n",
        inmost="class Inmost: 'As Late, but for Outer.'\n",
    )
    return tmp_path


def used(label: str, folder: Path) -> set[str]:
    files = extension_digests(folder)
    found = used_files(label, files)
    assert found.items() <= files.items()
    return {name.removeprefix("methods/").removesuffix(".py") for name in found}


def find(label: str, name: str) -> Any:
    with finding_for(label):
        return methods.find(name)


def test_what_a_trial_finds_counts_for_its_label_alone(folder: Path) -> None:
    """In a process that trains one method after another, and imports each file once."""
    find("first", "outer")
    find("second", "late")
    find("third", "inmost")
    find("fourth", "focal")
    assert [used(label, folder) for label in ("first", "second", "third", "fourth")] == [
        {"outer", "inner"},
        {"late"},
        {"inmost"},
        set(),
    ]
    with finding_for("second"):
        methods.find("late")().loss()
    assert used("second", folder) == {"late", "outer", "inner"}
    assert used("third", folder) == {"inmost"}


def test_helpers_that_were_imported_count_and_what_is_no_python(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ("methods/_helper.py", "methods/_other.py", "data/a/b.npy", "data/names.csv")
    left_out = (
        "methods/README",
        "data/names.txt",
        "data/a/.hidden",
        "data/.b/c.npy",
        "data/c.npy~",
    )
    for place in (*places, *left_out):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text("")
    monkeypatch.syspath_prepend(folder / "methods")
    monkeypatch.delitem(sys.modules, "_helper", raising=False)
    find("third", "inmost")
    assert used("third", folder) == {"inmost", "data/a/b.npy", "data/names.csv"}
    importlib.import_module("_helper")
    assert used("third", folder) == {"inmost", "_helper", "data/a/b.npy", "data/names.csv"}
    monkeypatch.delitem(sys.modules, "_helper")


def test_another_folder_begins_anew(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    find("first", "outer")
    extended(other := tmp_path_factory.mktemp("other"), inner="class Inner: pass\n")
    assert used("first", other) == set()
    find("first", "inner")
    assert used("first", other) == {"inner"}
