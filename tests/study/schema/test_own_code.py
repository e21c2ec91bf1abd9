"""What a Python that we start imports, whatever lies in the working directory."""

import subprocess
import sys
from pathlib import Path

import pytest

from study.schema import own_code


def test_a_new_python_imports_our_code_and_nothing_of_the_working_directory(tmp_path: Path) -> None:
    for name in ("json", "study", "torch"):
        (tmp_path / f"{name}.py").write_text(
            "raise SystemExit('imported from the working directory')\n"
        )
    command = [sys.executable, "-c", "import json, study; print(study.__file__)"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=own_code.environment()
    )
    assert Path(done.stdout.strip()) == own_code.ROOT / "study" / "__init__.py", done.stderr


def test_a_checkout_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_code, "ROOT", tmp_path)
    own_code.folders_to_add.cache_clear()
    try:
        assert own_code.folders_to_add() == [str(tmp_path)]
        assert own_code.environment()["PYTHONPATH"].split(":")[0] == str(tmp_path)
    finally:
        own_code.folders_to_add.cache_clear()
