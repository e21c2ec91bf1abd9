"""Whole studies, with Ray and MLflow as they are: gone on with, grown, refused, copied."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.study.command_line import ENVIRONMENT, here, here_json, write_spec
from tests.study.counting import counted_once, epochs_trained

pytestmark = [pytest.mark.slow, pytest.mark.platform]


@dataclass(frozen=True)
class Ran:
    """A study that was run on one CPU, and what that printed."""

    storage: Path
    spec: Path
    shown: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """As in `sbatch -c1`."""
    storage = tmp_path_factory.mktemp("ran")
    spec = write_spec(storage / "small.yaml", epochs=10)
    cpu = min(os.sched_getaffinity(0))
    words = ["run", spec, "--storage", storage]
    command = ["taskset", "-c", cpu, sys.executable, "-m", "study.cli", *words]
    done = subprocess.run([*map(str, command)], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Ran(storage, spec, done.stdout)


def trained(file: Path) -> tuple[float, float]:
    """When the first epoch of an attempt began and its last one ended."""
    epochs = json.loads(file.read_text())
    return epochs[0]["time"] - epochs[0]["seconds"], epochs[-1]["time"]


def test_one_cpu_trains_one_trial_at_a_time(ran: Ran) -> None:
    """Ray alone would count the CPUs of the machine. By what the trials record: to count processes
    counts a child too, which is its parent's twin until it becomes another program."""
    if os.cpu_count() == 1:
        pytest.skip("this machine has one CPU")
    assert "starting Ray with 1 of" in ran.shown and "CPUs (the CPU affinity)" in ran.shown
    times = sorted(map(trained, ran.storage.glob("small/trials/*/*/*/history.json")))
    assert len(times) == 6 and all(one[1] <= other[0] for one, other in pairwise(times))
    words = ("--storage", ran.storage, "--address", "auto", "--cpus", 1)
    assert "--cpus is for this machine" in here("run", ran.spec, *words, check=2)


def test_a_study_is_counted_goes_on_and_refuses_another_meaning(ran: Ran) -> None:
    assert "6/6 trials; 6 complete" in ran.shown and "front" in ran.shown
    study = counted_once(ran.storage, 6)
    assert epochs_trained(study) == 60
    assert not list(study.directory.glob("trials/*/*/*/last.pt"))
    status = here_json("status", "small", "--storage", ran.storage)
    assert status["methods"] == {
        label: dict(
            planned=3,
            complete=3,
            excluded=0,
            set_aside=0,  # what it was called
            pruned=0,
            failed=0,
            running=0,
            interrupted=0,
            to_do=0,
        )
        for label in ("cross_entropy", "focal")
    }
    hours = sum(record.seconds or 0.0 for record in study.records()) / 3600  # of one CPU each
    assert status["name"] == "small" and abs(status["spending"]["cpu_hours"] - hours) < 1e-9 * hours
    first = [record.params for record in study.records().of("focal")]
    # Published first.
    assert first == [{"method.gamma": gamma, "optimizer.lr": 0.1} for gamma in (3.0, 2.0, 1.0)]

    # The same command again: nothing to do, nothing changed.
    before = (study.directory / "ledger.log").read_bytes()
    here("run", ran.spec, "--storage", ran.storage)
    assert (study.directory / "ledger.log").read_bytes() == before

    # More trials and another method go on; what was there stays.
    write_spec(ran.spec, methods=["cross_entropy", "focal", "mbls"], trials=4, epochs=10)
    here("run", ran.spec, "--storage", ran.storage)
    grown = counted_once(ran.storage, 12)
    assert [record.params for record in grown.records().of("focal")][:3] == first

    # Another meaning is refused, with the lines that differ and the mend; nothing is written.
    before = (study.directory / "study.yaml").read_bytes()
    write_spec(ran.spec, methods=["cross_entropy", "focal", "mbls"], trials=4, epochs=3)
    refused = here("run", ran.spec, "--storage", ran.storage, check=2)
    assert (
        "epochs: was 10, is 3" in refused and "new name" in refused and "Traceback" not in refused
    )
    assert (study.directory / "study.yaml").read_bytes() == before


def test_a_copy_and_a_renamed_study_are_refused(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", methods=["cross_entropy"], trials=1, epochs=1)
    here("run", spec, "--storage", tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    before = (tmp_path / "two" / "small" / "ledger.log").read_bytes()
    for words in (
        ("run", spec),
        ("sync", "small"),
        ("export", "small", "--pick", "knee", "--name", "m"),
    ):
        refused = here(*words, "--storage", tmp_path / "two", check=2)
        assert (
            f"not the study's home, which is {tmp_path / 'one' / 'small'}." in refused
            and refused.count("\n") == 1
        )
    assert (tmp_path / "two" / "small" / "ledger.log").read_bytes() == before
    here("status", "small", "--storage", tmp_path / "two")  # to read it harms nobody

    (tmp_path / "two" / "small").rename(tmp_path / "two" / "other")
    refused = here("status", "other", "--storage", tmp_path / "two", check=2)
    assert "contains the study 'small'" in refused and "Rename the folder back" in refused

    # Moved as a whole, it is the same study: it goes on.
    (tmp_path / "one").rename(tmp_path / "moved")
    here("run", spec, "--trials", 2, "--storage", tmp_path / "moved")
    counted_once(tmp_path / "moved", 2)


def test_only_the_models_of_the_front_are_kept(tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", keep_models="front", serve="raw", trials=4)
    here("run", spec, "--storage", tmp_path)
    study = counted_once(tmp_path, 8)
    front = here_json("pareto", "small", "--storage", tmp_path)["front"]
    kept = {
        f"{path.parts[-4]}/{int(path.parts[-3])}"
        for path in study.directory.glob("trials/*/*/*/model.pt")
    }
    assert kept == {f"{row['method']}/{row['number']}" for row in front}
    assert len(list(study.directory.glob("trials/*/*/*/predictions.npz"))) == 8
