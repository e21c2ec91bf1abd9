"""Another package under one of our names: one clear error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from study.engine.deaths import death_of
from study.machines.ray_session import ClusterError

ROOT = Path(__file__).parents[1]


def python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT.parent,
    )


@pytest.mark.parametrize("name", ["study", "trainables", "search_spaces"])
def test_the_command_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    done = python(tmp_path, "from calstudy import main; main()")
    assert done.returncode == 2 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"calstudy: '{name}' is imported from {tmp_path / name}, not from {ROOT / name}. Rename"
    )


def test_a_script_is_shown_it(tmp_path: Path) -> None:
    (tmp_path / "trainables.py").touch()
    last = python(tmp_path, "from study import Study").stderr.splitlines()[-1]
    assert last.startswith(
        f"ImportError: calstudy: 'trainables' is imported from {tmp_path / 'trainables.py'}"
    )


def test_a_ray_worker_that_finds_it_ends_the_run() -> None:
    with pytest.raises(
        ClusterError, match=r"instead of calstudy's: it has no module trainables\.training"
    ):
        death_of(
            "ray.exceptions.RayTaskError: ModuleNotFoundError: No module named"
            " 'trainables.training.trainable'"
        )


def test_the_door_loads_nothing_heavy() -> None:
    heavy = {"torch", "ray", "optuna", "mlflow", "pandas", "numpy"}
    done = python(ROOT, f"import sys, study\nprint(*sorted({heavy!r} & set(sys.modules)))")
    assert done.stdout.strip() == "" and done.returncode == 0, done.stderr
