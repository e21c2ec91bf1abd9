"""A machine whose driver counts a GPU that torch cannot use: NVIDIA's library says one, CUDA has
none."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from study.store.study import open_study
from tests.hosts import Host, network, start_head, start_worker
from tests.patience import patient
from tests.study.command_line import write_spec

pytestmark = [pytest.mark.slow, pytest.mark.platform]

SOURCE = Path(__file__).with_name("pretended_nvml.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc) for a library that says there is a GPU")
    folder = tmp_path_factory.mktemp("nvml")
    build(folder / "libnvidia-ml.so.1")
    return folder


def build(file: Path) -> None:
    subprocess.run(["cc", "-shared", "-fPIC", "-o", file, SOURCE], check=True)


def ours(*words: object, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "study.cli", *map(str, words)]
    return subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, timeout=patient(300)
    )


def test_doctor_and_a_run_here_say_so(library: Path, tmp_path: Path) -> None:
    env = {"LD_LIBRARY_PATH": str(library)}
    spec = write_spec(tmp_path / "small.yaml", resources={"gpu": 0.5})
    storage = tmp_path / "studies"
    ran = ours("run", spec, "--storage", storage, env=env)
    found = "has a GPU that torch cannot use (GPU 0: Found no NVIDIA driver on your system."
    assert ran.returncode == 75
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"resources.gpu: this machine {found}")
    assert line.endswith("Install a GPU driver and a build of torch that fit each other.")
    assert not (storage / "small").exists()
    asked = ours("doctor", spec, "--storage", storage, env=env)
    assert asked.returncode == 1 and found in asked.stdout + asked.stderr


def test_a_node_with_such_a_gpu_fails_no_trial(hosts_allowed: None, tmp_path: Path) -> None:
    """The other one's is simulated."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc) for a library that says there is a GPU")
    shared = tmp_path / "shared"
    storage = shared / "studies"
    storage.mkdir(parents=True)
    build(shared / "libnvidia-ml.so.1")
    spec = write_spec(shared / "small.yaml", trials=3, resources={"gpu": 0.5})
    with network(3, shared) as (head, good, bad):
        start_head(head, cpus=0)
        start_worker(good, head, options=["--num-gpus=1"], env={"CALSTUDY_DEVICE": "cpu"})
        start_worker(bad, head, env={"LD_LIBRARY_PATH": str(shared)})
        words = ("run", spec, "--address", f"{head.address}:6379", "--storage", storage)
        ran = on(head, *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (line,) = [line for line in ran.stdout.splitlines() if "is passed over" in line]
    assert line.startswith(f"node {bad.address} is passed over: it has no GPU that torch can use (")
    assert "Found no NVIDIA driver" in line
    records = open_study("small", str(storage)).records()
    assert len(records.complete) == len(records) == 6
    assert {record.host for record in records} == {good.name}
    assert all(record.deaths == {} for record in records)


def on(host: Host, *words: object) -> subprocess.CompletedProcess[str]:
    command = ["python", "-m", "study.cli", *map(str, words)]
    return host.run(command, check=False, timeout=300)
