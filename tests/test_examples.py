"""The examples run as a user runs them, and print what they promise."""

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

import nbformat
import pytest
from nbclient import NotebookClient

from study import Study
from tests.patience import patient
from tests.shared import with_empty_mlflow
from tests.study.command_line import here, here_json
from tests.study.made import made_study
from trainables import models
from trainables.models.shared.whole_module import network_of
from trainables.plugins import use_extensions

EXAMPLES = Path(__file__).parents[1] / "examples"


# A dashboard, and what else Tune's user may like, takes ten seconds of CPU to start.
ON_RAY = """
import ray, runpy, sys
from study.machines.ray_compat import without_services
with without_services():
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def run_on_ray(name: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", ON_RAY, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=patient(280)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_here(name: str, folder: Path, *words: object) -> str:
    """In this process, which has imported what an example needs."""
    shown = io.StringIO()
    argv = [f"{name}.py", *map(str, words)]
    with contextlib.chdir(folder), redirect_stdout(shown), mock.patch("sys.argv", argv):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return shown.getvalue()


@pytest.mark.slow
def test_a_study_is_read(tmp_path: Path) -> None:
    values = [
        ({"accuracy": 0.9, "ece": 0.05, "nll": 0.3}, []),
        ({"accuracy": 0.8, "ece": 0.02, "nll": 0.4}, []),
    ]
    made_study(tmp_path, "digits", {"focal": values, "cross_entropy": values})
    shown = run_here("read_a_study", tmp_path, tmp_path / "digits")
    assert "focal" in shown and "0.85  0.035" in shown  # medians
    assert (tmp_path / "accuracy_against_ece.png").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.platform
def test_a_study_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executed as Jupyter does, in a kernel; as it lies there it was executed too."""
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    with_empty_mlflow(("run", "notebook", "--storage", tmp_path / "studies"))
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    monkeypatch.setenv("RAY_ADDRESS", "local")  # not the cluster of another test
    # One trial at a time: each process that trains imports torch.
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(
        notebook, timeout=int(patient(280)), kernel_name="python3", resources=where
    ).execute()
    outputs = [output for cell in cells for output in cell.outputs]
    # No warning of any library, and no line but the last of the progress is left.
    assert not [each.text for each in outputs if each.get("name") == "stderr"]
    shown = "".join(each.text for each in outputs if each.get("name") == "stdout")
    assert "Did you mean 'epochs'?" in shown and "notebook: 4/4 trials; 4 complete" in shown
    assert "»" not in shown and "starting" not in shown and "\x1b" not in shown
    study = Study.open("notebook", storage=tmp_path / "studies")
    tables = [each.data["text/html"] for each in outputs if "text/html" in each.get("data", {})]
    assert study.front()[["trial", "accuracy", "ece", "ts_ece"]]._repr_html_() in tables
    confirmed = Study.open("notebook-confirm", storage=tmp_path / "studies").trials()
    assert confirmed[["trial", "accuracy", "test_accuracy", "test_ece"]]._repr_html_() in tables
    taken = here_json("answer", "notebook", "--storage", study.directory.parent)["sentences"][0]
    assert f"</svg>{taken.split()[1]}</p>" in tables[-1] and "study.export(" in tables[-1]


@pytest.mark.slow
def test_predictions_are_measured(tmp_path: Path) -> None:
    """The logits are twice what they should be: a temperature of 2 calibrates them."""
    shown = run_here("evaluate_predictions", tmp_path)
    found = dict(re.findall(r"^(ECE|temperature) ([\d.]+)", shown, re.MULTILINE))
    assert float(found["temperature"]) == pytest.approx(2, abs=0.15)
    ece, scaled = map(float, re.findall(r"^ece +(0\.\d{4})  (0\.\d{4})", shown, re.MULTILINE)[0])
    assert ece == float(found["ECE"]) > 0.03 > scaled and shown.endswith("its ECE is worse\n")
    assert (tmp_path / "reliability.png").stat().st_size > 5000
    assert here_json("evaluate", tmp_path / "predictions.npz")["num_samples"] == 2000


@pytest.mark.slow
def test_a_loss_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    # Log 2 / 4 = 0.17 at the start.
    assert float(run_here("own_training_loop", tmp_path).split()[-1]) < 0.15


@pytest.mark.slow
@pytest.mark.platform
def test_a_tuner_of_ones_own(tmp_path: Path) -> None:
    assert "accuracy 0." in run_on_ray("own_tuner", tmp_path)


@pytest.mark.slow
def test_a_method_a_network_a_data_set_and_a_metric_of_ones_own(tmp_path: Path) -> None:
    """On Ray, others of one's own: test_run_failures.py, machines/test_ray_job.py."""
    here("run", EXAMPLES / "extensions.yaml", "--storage", tmp_path)
    front = here_json("pareto", "extensions", "--storage", tmp_path)["front"]
    assert {row["method"] for row in front} <= {"cross_entropy", "soft_targets"} and front
    assert all(0 <= row["validation"]["fairness_gap"] <= 1 for row in front)


def test_a_whole_module_of_ones_own() -> None:
    use_extensions(EXAMPLES / "extensions")
    made = network_of(models.find("whole")(), (1, 8, 8), 2)
    use_extensions(None)
    assert made.head.weight.shape == (2, 16 * 8)
