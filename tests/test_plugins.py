"""The code of a user's own: what is run is what is recorded."""

import importlib.util
import marshal
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainables import methods
from trainables.plugins import extension_files, use_extensions


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


def test_code_that_is_found_only_when_a_method_runs_counts(tmp_path: Path) -> None:
    extended(
        tmp_path,
        outer="from trainables import methods\nclass Outer:\n    def loss(self): return methods.find('inner')()\n",
        inner="class Inner:\n    base = 'inmost'\n",
        inmost="class Inmost: pass\n",
        inn="class Inn: pass\n",
    )
    assert extension_files([methods.find("outer")]) == [
        "methods/inmost.py",
        "methods/inner.py",
        "methods/outer.py",
    ]
