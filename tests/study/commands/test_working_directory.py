"""Nothing of the working directory is imported or run, by any command or its processes."""

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from study.cli import calstudy
from tests.patience import patient
from tests.study.command_line import ENVIRONMENT, write_spec

pytestmark = [pytest.mark.slow, pytest.mark.platform]

OURS = {"study", "trainables", "search_spaces", "calstudy"}
SCRIPT = Path(sys.executable).with_name("calstudy")
COMMAND = [str(SCRIPT)] if SCRIPT.is_file() else [sys.executable, "-P", "-m", "study.cli"]


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with a file for every library's name; one that is imported, or run, says so
    in `trail` beside it."""
    folder, trail = tmp_path / "trap", tmp_path / "trail"
    folder.mkdir()
    names = {*sys.stdlib_module_names, *packages_distributions()} - {*OURS, "sitecustomize"}
    for name in filter(str.isidentifier, names):
        tell = f"open({str(trail)!r}, 'a').write({name!r} + chr(10))"
        (folder / f"{name}.py").write_text(f"{tell}\nraise ImportError({name!r})\n")
    (folder / "matplotlibrc").write_text("text.usetex: True\n")
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    subprocess.run(
        ["git", "config", "core.fsmonitor", f"echo git >> {trail}; false"], check=True, cwd=folder
    )
    return folder


# One process for all: most of a command's time is its imports. What is imported from the
# working directory is so by the first that asks for it.
IN_TURN = """
import os, sys
from study.cli import main

trail, *commands = sys.argv[1:]
for words in commands:
    try:
        main(words.split())
    except SystemExit as end:
        found = "something" if os.path.exists(trail) else "nothing"
        print(f"ended: {words}: {end.code or 0}, {found} of it", flush=True)
"""


def test_no_command_imports_from_it(trap: Path, tmp_path: Path) -> None:
    write_spec(trap / "small.yaml", methods=["cross_entropy"], trials=2)
    write_spec(trap / "other.yaml", name="other", methods=["cross_entropy"], trials=1)
    trials = tmp_path / "studies" / "small" / "trials" / "cross_entropy"
    commands = [
        "plan small.yaml",
        f"init slurm small.yaml -o {tmp_path}/small.sbatch",
        f"init docker -o {tmp_path}/Dockerfile",
        "plan small.yaml --probe",
        "run small.yaml --cpus 1",
        "run other.yaml --cpus 1",
        "status small",
        "trials small",
        "answer small",
        f"pareto small --figure {tmp_path}/front.png --bootstrap 100",
        "compare small other",
        "figures small --bootstrap 0",
        f"evaluate {trials}/0000/attempt-1/predictions.npz",
        "list methods",
        "confirm small --seeds 1 --cpus 1",
        "report small",
        "export small --name small",
        "verify models:/small/1",
        "audit small",
        "sync small",
        "reproduce",
        "doctor small.yaml",
        "slim small --yes",
        "delete small --yes",
    ]
    assert {words.split()[0] for words in commands} == set(calstudy.list_commands(None))  # type: ignore[arg-type]
    environment = {**ENVIRONMENT, "CALSTUDY_STORAGE": str(tmp_path / "studies")}
    before = sorted(os.listdir(trap))

    def ended(command: list[str]) -> subprocess.CompletedProcess[str]:
        pipes: dict[str, Any] = {"capture_output": True, "text": True}
        done = subprocess.run(command, cwd=trap, env=environment, timeout=patient(800), **pipes)
        trail = (tmp_path / "trail").read_text().split() if (tmp_path / "trail").exists() else []
        assert trail == [] and done.returncode == 0, f"{trail}\n{done.stdout}\n{done.stderr}"
        return done

    ended([*COMMAND, *commands[0].split()])
    done = ended([sys.executable, "-P", "-c", IN_TURN, str(tmp_path / "trail"), *commands])
    shown = [line for line in done.stdout.splitlines() if line.startswith("ended: ")]
    assert shown == [f"ended: {words}: 0, nothing of it" for words in commands]
    assert sorted(os.listdir(trap)) == before


WORKER = """
import os, sys
import ray
from study.machines.ray_session import joined

with joined(None, {}, asked_cpus=1):
    path, safe = ray.get(ray.remote(lambda: (sys.path, sys.flags.safe_path)).remote())
print(os.getcwd() in map(os.path.abspath, path), safe, "PYTHONSAFEPATH" in os.environ)
"""


def test_a_worker_of_a_script_does_not_look_there(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WORKER)
    command = [sys.executable, "script.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=patient(280)
    )
    assert done.stdout.split() == ["False", "True", "False"], done.stderr
