"""`import calstudy`, and another package under one of our names: one clear error."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import calstudy
from calstudy import losses, metrics
from study.engine.deaths import death_of
from study.machines.ray_session import ClusterError
from trainables.metrics import find, ours

ROOT = Path(__file__).parents[1]
GAMMAS = {
    "scheduled": "focal_scheduled",
    "sample": "focal_sample_dependent",
    "learned": "gamma_net",
}


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


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("trainables", "from study import Study"),
        ("trainables", "import calstudy; calstudy.Study"),
        ("study", "import calstudy; calstudy.Study"),
        ("study", "import calstudy; calstudy.losses"),
    ],
)
def test_a_script_is_shown_it(tmp_path: Path, name: str, script: str) -> None:
    (tmp_path / f"{name}.py").touch()
    last = python(tmp_path, script).stderr.splitlines()[-1]
    assert last.startswith(
        f"ImportError: calstudy: '{name}' is imported from {tmp_path / name}.py, not from"
    )


def test_a_folder_without_init_is_not_in_the_way(tmp_path: Path) -> None:
    """Say results, or a clone of calstudy, beside a script."""
    for name in ("study", "calstudy"):
        (tmp_path / name / "calstudy").mkdir(parents=True)
    done = python(tmp_path, "import calstudy; print(calstudy.Study)")
    assert done.stdout == "<class 'study.python.Study'>\n", done.stderr


def test_a_ray_worker_that_finds_it_ends_the_run() -> None:
    with pytest.raises(
        ClusterError, match=r"instead of calstudy's: it has no module trainables\.training"
    ):
        death_of(
            "ray.exceptions.RayTaskError: ModuleNotFoundError: No module named"
            " 'trainables.training.trainable'"
        )


@pytest.mark.parametrize("name", ["study", "calstudy"])
def test_the_door_loads_nothing_heavy(name: str) -> None:
    heavy = {"torch", "ray", "optuna", "mlflow", "pandas", "numpy", "matplotlib"}
    done = python(ROOT, f"import sys, {name}\nprint(*sorted({heavy!r} & set(sys.modules)))")
    assert done.stdout.strip() == "" and done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", [calstudy, losses], ids=["calstudy", "losses"])
def test_the_names_are_those_that_type_checkers_see(module: ModuleType) -> None:
    stub = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text())
    seen = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    meant = {str(one.asname): (node.module, one.name) for node in seen for one in node.names}
    assert dir(module) == sorted(meant)
    for name, (place, own) in meant.items():
        there = getattr(importlib.import_module(str(place)), own)
        assert getattr(module, name) is there, name
        assert there.__doc__, name


def test_each_loss_is_the_function_of_a_method() -> None:
    for name in dir(losses):
        place = getattr(losses, name).__module__
        assert place.startswith("trainables.methods."), name
        gamma = name.endswith("_gamma")
        assert gamma or place.rpartition(".")[2] == name
    # Each gamma is that of the method which `calstudy.losses` names.
    of_gamma = [getattr(losses, f"{name}_gamma").__module__ for name in GAMMAS]
    assert of_gamma == [f"trainables.methods.{method}" for method in GAMMAS.values()]


def test_the_metrics_are_ours_and_nothing_else() -> None:
    assert dir(metrics) == sorted(ours())
    assert all(getattr(metrics, name) is find(name) for name in ours())
    for other in ("find", "ts_ece", "nope"):
        with pytest.raises(AttributeError, match=f"'calstudy.metrics' has no attribute '{other}'"):
            getattr(metrics, other)
