"""The fixture that compares wordings with the approved ones, tried on tests of its own."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests import approval

ROOT = Path(__file__).parents[1]
PLUGIN = """\
from tests import approval

def pytest_addoption(parser):
    parser.addoption("--approve", action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(approval.Approvals(config))
"""
BODY = """\
import pytest

def test_one(approved, tmp_path):
    approved(f"{tmp_path}/a.csv: 3 rows of 1,000, 'a' is missing.")
    approved("host me, torch 2.11.0+cpu", host="me")

@pytest.mark.platform
@pytest.mark.parametrize("word", ["a", "b"])
def test_two(approved, word):
    approved(f"the word {word}")
"""
FILE = """\
=== test_one
PATH/a.csv: N rows of N, 'a' is missing.

=== test_one 2
host HOST, torch VERSION

=== test_two[a]
the word a

=== test_two[b]
the word b
"""
STALE = "\n=== test_gone\nnobody says this\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tests and what was approved of them."""
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = platform\n")
    (tmp_path / "test_it.py").write_text(BODY)
    (tmp_path / "approved").mkdir()
    file_of(tmp_path).write_text(FILE)
    return tmp_path


def file_of(folder: Path) -> Path:
    return folder / "approved" / "test_it.txt"


# Of pytest's plugins those that would change this process for good, or take long to start.
WITHOUT = [
    word
    for name in ("cacheprovider", "anyio", "faulthandler", "unraisableexception", "logging")
    for word in ("-p", f"no:{name}")
]
BESIDE = ("--numprocesses", "2", "--dist", "loadfile")


def said_of(folder: Path, *words: str, name: str = "test_it.py", ci: str = "") -> str:
    """What pytest says of them at its end, run in this process."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(said):
        patch.chdir(folder)
        patch.setenv("CI", ci)
        patch.setattr(sys, "path", [*sys.path])
        try:
            pytest.main(
                ["-q", *WITHOUT, f"--basetemp={folder / 'base'}", str(folder / name), *words]
            )
        finally:
            for module in ("conftest", "test_it"):
                sys.modules.pop(module, None)
    return said.getvalue()


def said_beside(folder: Path, *words: str) -> str:
    """What pytest says of them in processes of its own."""
    command = [sys.executable, "-m", "pytest", "-q", *WITHOUT, "test_it.py", *BESIDE, *words]
    environment = {**os.environ, "CI": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{base}/test_it0/a.csv, row 13", "PATH/a.csv, row N"),
        ("in {base}/storage3.", "in PATH."),
        (f"{ROOT}/study/cli.py", "ROOT/study/cli.py"),
        ("ray 2.60.1, torch 2.11.0+cpu.", "ray VERSION, torch VERSION."),
        ("-0.1, 1e-06, 3,001, 95% and [4, 0]", "N, N, N, N% and [N, N]"),
        ("float32, UTF-8, attempt-1, focal/0001", "float32, UTF-8, attempt-1, focal/N"),
        ("trailing  \nspace\n", "trailing\nspace"),
    ],
)
def test_what_differs_from_run_to_run_is_replaced(
    text: str, expected: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.getbasetemp()
    assert approval.plain(text.format(base=base), {}, base) == expected


def test_every_approved_file_has_its_tests() -> None:
    """Nobody else would miss them."""
    for file in (ROOT / "tests").rglob("approved/*.txt"):
        assert (file.parents[1] / f"{file.stem}.py").exists(), file


@pytest.mark.slow
def test_it_writes_what_it_then_compares(folder: Path) -> None:
    file_of(folder).unlink()
    said = said_of(folder)
    assert "3 failed" in said and "+ the word a" in said and "make approve FILES=" in said
    assert "3 passed" in said_of(folder, "--approve") and file_of(folder).read_text() == FILE
    assert "3 passed in" in said_of(folder)
    file_of(folder).write_text(FILE.replace("the word b", "a word b"))
    said = said_of(folder)
    assert "1 failed, 2 passed" in said and "- a word b\n" in said and "+ the word b\n" in said
    assert "3 passed in" in said_beside(folder, "--approve")
    assert file_of(folder).read_text() == FILE


@pytest.mark.slow
@pytest.mark.parametrize("key", ["test_gone", "test_one 3"])
def test_a_key_that_no_test_asks_for_fails_and_is_removed(folder: Path, key: str) -> None:
    file_of(folder).write_text(FILE + STALE.replace("test_gone", key))
    for words in ([], ["-m", "not platform"]):
        said = said_of(folder, *words)
        assert "1 error" in said and f"no test asks for {key} of" in said
    said_of(folder, "--approve")
    assert file_of(folder).read_text() == FILE


@pytest.mark.slow
def test_such_a_key_fails_where_files_run_side_by_side(folder: Path) -> None:
    file_of(folder).write_text(FILE + STALE)
    said = said_beside(folder)
    assert "1 error" in said and "no test asks for test_gone of" in said


@pytest.mark.slow
def test_keys_of_tests_that_did_not_run_are_known(folder: Path) -> None:
    assert "1 passed, 2 deselected in" in said_of(folder, "-m", "not platform")
    assert "2 passed, 1 deselected in" in said_of(folder, "-m", "platform")
    file_of(folder).write_text(FILE + STALE)  # unknown, for who collects the whole file
    assert "1 passed in" in said_of(folder, name="test_it.py::test_two[a]")
    said_of(folder, "--approve", name="test_it.py::test_two[a]")
    assert "=== test_gone\n" in file_of(folder).read_text()


@pytest.mark.slow
def test_a_test_that_failed_keeps_its_keys(folder: Path) -> None:
    body = BODY.replace('    approved("host', '    raise ValueError\n    approved("host')
    (folder / "test_it.py").write_text(body)
    for words in ([], ["--approve"]):
        assert "1 failed, 2 passed in" in said_of(folder, *words)
    assert file_of(folder).read_text() == FILE


@pytest.mark.slow
def test_ci_renews_nothing(folder: Path) -> None:
    file_of(folder).unlink()
    assert "ERROR: --approve: CI compares" in said_of(folder, "--approve", ci="true")
    assert not file_of(folder).exists()
