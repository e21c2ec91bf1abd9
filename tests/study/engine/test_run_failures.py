"""Trials that fail, and what the study makes of them."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import counted
from tests.patience import patient
from tests.study.command_line import calstudy, here, start, write_spec
from tests.study.counting import counted_once

pytestmark = [pytest.mark.slow, pytest.mark.platform]


FAULTY = {
    "raises": "raise RuntimeError('no such luck')",
    "exits": "__import__('sys').exit(3)",
    "kills": "__import__('os').kill(__import__('os').getpid(), 9)",
    "hangs": "__import__('time').sleep(1000)",
}


@dataclass(frozen=True)
class Begun:
    """A study of trials that fail, each in its way, and of one that does not."""

    storage: Path
    driver: subprocess.Popen[str]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begun]:
    """It waits a minute for the trial that hangs; meanwhile other tests run."""
    storage = tmp_path_factory.mktemp("faulty")
    for name, line in FAULTY.items():
        code = (
            "from dataclasses import dataclass\nfrom trainables.methods.cross_entropy import"
            " CrossEntropy\n\n\n@dataclass(frozen=True)\nclass"
            f" {name.capitalize()}(CrossEntropy):\n    def loss(self, logits, targets, progress):\n"
            f"        {line}\n"
        )
        write_method(storage, name, code)
    methods: list[Any] = [
        *FAULTY,
        "cross_entropy",
        {"label": "diverges", "name": "mbls", "weight": 1.0e30},
    ]
    keys = {
        "methods": methods,
        "trials": 1,
        "trial_minutes": 0.1,
        "search_space": {},
        "extensions": "mine",
    }
    driver = start("run", write_spec(storage / "small.yaml", **keys), "--storage", storage)
    yield Begun(storage, driver)
    driver.terminate()  # where the test that awaits it was not run
    driver.wait(patient(120))


def write_method(folder: Path, name: str, code: str) -> None:
    (folder / "mine" / "methods").mkdir(parents=True, exist_ok=True)
    (folder / "mine" / "methods" / f"{name}.py").write_text(code)


def run_on_a_pretended_gpu(folder: Path, methods: list[Any]) -> str:
    """A trial of each, two at once (Ray counts the GPU, the CPU computes); Ray's address."""
    keys = {"methods": methods, "trials": 1, "search_space": {}, "extensions": "mine"}
    spec = write_spec(folder / "small.yaml", resources={"cpu": 0.5, "gpu": 0.5}, **keys)
    with counted(cpus=2, gpus=1) as address:
        calstudy("run", spec, "--storage", folder, "--address", address)
    return address


LOST = """
import dataclasses, ray
from trainables.methods.cross_entropy import CrossEntropy

@dataclasses.dataclass(frozen=True)
class Lost(CrossEntropy):
    enough: float = 1.0

    def loss(self, logits, targets, progress):
        if ray.get_runtime_context().get_assigned_resources().get("GPU", 0.0) < self.enough:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return super().loss(logits, targets, progress)
"""


HUNGRY = """
import dataclasses, ray, torch
from trainables.methods.cross_entropy import CrossEntropy

@dataclasses.dataclass(frozen=True)
class Hungry(CrossEntropy):
    enough: float = 1.0

    def loss(self, logits, targets, progress):
        if ray.get_runtime_context().get_assigned_resources().get("GPU", 0.0) < self.enough:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB")
        return super().loss(logits, targets, progress)
"""


@pytest.mark.usefixtures("faulty")
def test_on_a_whole_gpu_a_trial_fits_and_a_fault_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On pretended GPUs (Ray counts them, the CPU computes), and a pretended MPS; unverified on
    real ones. The process of a fault ends, so no other trial gets the broken GPU."""
    monkeypatch.setenv("CALSTUDY_DEVICE", "cpu")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    (tmp_path / "control").touch()
    write_method(tmp_path, "lost", LOST)
    write_method(tmp_path, "hungry", HUNGRY)
    methods = [
        {"label": "victim", "name": "lost", "enough": 1.0},
        {"label": "culprit", "name": "lost", "enough": 2.0},
        "cross_entropy",
        {"label": "too_hungry", "name": "hungry", "enough": 2.0},
        {"label": "hungry", "name": "hungry", "enough": 1.0},
        {"label": "provided", "name": "hungry", "enough": 1.0, "resources": {"gpu": 1}},
    ]
    address = run_on_a_pretended_gpu(tmp_path, methods)
    confirms = f"calstudy confirm small --storage {tmp_path} --address {address}"
    assert confirms in here("answer", "small", "--storage", tmp_path)  # also asked later
    study = counted_once(tmp_path, 6)
    found = {label: records[0] for label, records in study.records().by_label.items()}
    assert {
        label: (record.state, record.attempt, record.deaths) for label, record in found.items()
    } == {
        "victim": ("complete", 2, {"node": 1}),
        "culprit": ("failed", 4, {"node": 1, "process": 3}),
        "cross_entropy": ("complete", 1, {}),
        "too_hungry": ("failed", 2, {"out_of_memory": 2}),
        "hungry": ("complete", 2, {"out_of_memory": 1}),
        "provided": ("complete", 1, {}),
    }
    reason = "its GPU was lost: RuntimeError: CUDA error: an illegal memory access was encountered"
    assert found["culprit"].reason == reason
    processes = [
        (study.directory / "trials" / "culprit" / "0000" / f"attempt-{attempt}" / "log")
        .read_text()
        .splitlines()[0]
        for attempt in (1, 2, 3, 4)
    ]
    assert len(set(processes)) == 4
    assert str(found["too_hungry"].reason).startswith("OutOfMemoryError: CUDA out of memory")


def test_a_trial_that_fails_is_recorded_and_the_study_goes_on(faulty: Begun) -> None:
    """One method diverges, raises, exits, kills its own process, hangs: FAIL with
    the reason; the others complete."""
    storage = faulty.storage
    shown = faulty.driver.communicate(timeout=patient(280))[0]
    assert faulty.driver.returncode == 0, shown
    # Read without the folder it was run with: the study keeps its own.
    (storage / "mine").rename(storage / "gone")
    study = counted_once(storage, 6)
    found = {label: records[0] for label, records in study.records().by_label.items()}
    assert {label: record.state for label, record in found.items()} == {
        "raises": "failed",
        "exits": "failed",
        "kills": "failed",
        "hangs": "failed",
        "cross_entropy": "complete",
        "diverges": "failed",
    }
    assert found["raises"].reason == (
        "methods/raises.py, line 8, in loss: RuntimeError: no such luck"
    )
    assert (found["exits"].reason, found["exits"].attempt) == (
        "methods/exits.py, line 8, in loss: SystemExit: 3",
        1,
    )
    assert all(set(found[name].extensions) == {f"methods/{name}.py"} for name in FAULTY)
    assert (
        "its process died: its worker process has died" in str(found["kills"].reason)
        and found["kills"].attempt == 5
    )
    assert (
        found["hangs"].reason
        == "trial_minutes: stopped after 0.1 minutes, at epoch 0, where it hung"
    )
    assert found["kills"].deaths == {"machine": 5, "alone": 3} and found["hangs"].attempt == 1
    assert "at epoch 1" in str(found["diverges"].reason) and "optimizer.lr" in str(
        found["diverges"].reason
    )
    assert (
        "trial raises/0000: methods/raises.py, line 8, in loss: RuntimeError: no such luck."
        in shown
    )
    assert "no such luck" in here("status", "small", "--storage", storage)
    assert "no such luck" in (study.files(found["raises"]) / "log").read_text()
