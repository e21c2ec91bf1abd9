"""benchmarks/gpu: each stage runs, on the CPU; what it leaves is read, gone on
with and put into words."""

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import throughput
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import stages
from benchmarks.gpu.cases import case
from benchmarks.gpu.expected import EXPECTED, judged
from study.schema.reading import read_spec
from tests import simulated_graph
from tests.study import command_line
from trainables import methods
from trainables.training import program

ROOT = Path(__file__).parents[2]


def options(folder: Path, **words: object) -> argparse.Namespace:
    plain = {
        "data": "digits",
        "device": "cpu",
        "small": True,
        "state": folder / "state",
        "out": folder / "out",
    }
    return argparse.Namespace(**{**plain, "seconds": 600.0, "stages": None, **words})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """Options; of the digits there are six batches to train on."""
    learner = stages.learner

    def of_few(
        *given: Any, data: Mapping[str, Any] = stages.FLIPPED, **settings: Any
    ) -> stages.Learner:
        return learner(*given, data={"validation": 0.7, **data}, **settings)

    monkeypatch.setattr(stages, "learner", of_few)
    monkeypatch.setenv("CALSTUDY_CACHE", str(tmp_path / "cache"))
    for name in ("state", "out"):
        (tmp_path / name).mkdir()
    return options(tmp_path)


def test_the_cpu_equals_itself_in_each_method(
    here: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss; a start, a preparation, a step and an order of its own."""
    names = ["focal", "focal_sample_dependent", "mixup", "meta_l2", "sample_prioritization"]
    monkeypatch.setattr(methods, "names", lambda: names)
    found = stages.equal(here)
    assert (
        found["captured unlike eager"] == {}
        and found["eager unlike eager"] == []
        and found["from the CPU"] == 0.0
        and list(found["by method"]) == names
    )


def test_a_model_that_cannot_be_captured_trains(
    here: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "captures", lambda device: True)
    monkeypatch.setattr(program, "capture", simulated_graph.capture)
    monkeypatch.setattr(program, "waits", simulated_graph.waits)
    found = stages.uncaptured(here)
    assert (
        "waits for the device" in found["because"]
        and found["next"] == "captured"
        and found["finite"]
    )


@pytest.mark.platform
def test_every_case_of_synchronisation_is_tried(here: argparse.Namespace) -> None:
    found = stages.synchronisation(here)
    assert found["cases"] >= 18 and found["that wait"] == {}


@pytest.mark.platform
def test_the_machine_and_the_training(here: argparse.Namespace) -> None:
    assert stages.inventory(here)["copy TB/s"] > 0
    found = stages.cost(here)
    assert set(found["over it"]) == set(methods.names()) and found["capture s"] == {}
    assert set(stages.accuracy(here)) == {"float32", "bfloat16"}
    assert min(stages.actors(here).values()) > 0
    assert stages.repeated(here)["cnn float32"] == {"median": 0.0, "most": 0.0}


def test_a_capture_is_timed(here: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "names", lambda: ["focal"])
    monkeypatch.setattr(program, "captures", lambda device: True)
    monkeypatch.setattr(program, "capture", simulated_graph.capture)
    monkeypatch.setattr(program, "waits", simulated_graph.waits)
    seconds = stages.cost(here)["capture s"]
    assert set(seconds) == {"cross_entropy", "focal"} and min(seconds.values()) > 0


def test_a_profile_leaves_a_trace(here: argparse.Namespace) -> None:
    share = stages.profile(here)["share"]
    assert 0.5 < sum(share.values()) <= 1.0
    with gzip.open(here.out / "trace.json.gz") as file:
        assert json.load(file)["traceEvents"]


def test_a_case_is_kept_as_it_comes_and_not_tried_again(here: argparse.Namespace) -> None:
    def cut_short() -> None:
        raise KeyboardInterrupt

    assert case(here, "cost", "focal", lambda: {"s": 1.0}) == {"s": 1.0}
    with pytest.raises(KeyboardInterrupt):
        case(here, "cost", "mbls", cut_short)
    with (here.state / "cases.jsonl").open("a") as file:
        file.write('{"stage": "cost", "ca')  # by a kill
    assert case(here, "cost", "focal", cut_short) == {"s": 1.0}
    with pytest.raises(KeyboardInterrupt):
        case(here, "equal", "focal", cut_short)


def test_what_was_expected_stands_beside_what_was_found() -> None:
    assert set(EXPECTED) <= set(stages.STAGES)
    found = {"because": "a step waits for the device", "next": "eager", "finite": True}
    assert judged("uncaptured", found) == {
        "the next trial is captured": "no",
        "finite weights": "yes",
    }
    assert judged("uncaptured", {"failed": "out of memory"}) == {}
    assert judged("inventory", {"bfloat16": True}) == {
        "CUDA takes at most 700 MiB beside PyTorch": "not measured ('context MiB')",
        "the GPU has bfloat16": "yes",
    }


def test_trials_are_timed_whole_by_the_fast_recipe(here: argparse.Namespace) -> None:
    found = stages.trials(here)
    assert set(found) == {"fast recipe", "ResNet-18"} and found["fast recipe"]["trials/h"] > 0


def test_the_fast_recipe_is_its_spec(here: argparse.Namespace) -> None:
    """Its shifts are of 2 pixels, not of an eighth of an image, as they were once."""
    spec = read_spec(ROOT / "study" / "specs" / "cifar10_fast.yaml")
    config = stages.learner(here, **stages.fast_recipe()).config
    for name in ("model", "optimizer", "batch_size", "epochs"):
        assert getattr(config, name) == getattr(spec, name)
    assert (config.data.augment, config.data.padding) == ("crop_alternating_flip", 2)


def test_airbench_is_left_out_without_a_gpu(here: argparse.Namespace) -> None:
    assert "skipped" in stages.airbench(here)


def test_a_daemon_of_mps_serves_its_stage_alone(
    here: argparse.Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "skipped" in stages.actors_under_mps(here)
    control = tmp_path / "nvidia-cuda-mps-control"
    asked = tmp_path / "asked"
    control.write_text(
        f'#!/bin/sh\necho "$1 $CUDA_MPS_PIPE_DIRECTORY" >>{asked}; [ "$1" ] || read word; echo'
        f" $word >>{asked}"
    )
    control.chmod(0o755)

    def failing(*_: object) -> stages.Found:
        raise ZeroDivisionError

    monkeypatch.setattr(stages, "actors", failing)
    with pytest.raises(ZeroDivisionError):
        stages.actors_under_mps(here)
    begun, _, ended, told = asked.read_text().splitlines()
    assert begun.startswith("-d /") and ended == begun.removeprefix("-d") and told == "quit"
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    control.write_text("#!/bin/sh\necho not permitted >&2; exit 1\n")
    assert stages.actors_under_mps(here) == {"skipped": "MPS does not start: not permitted"}


@pytest.mark.slow
def test_a_study_runs_and_is_read(
    here: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands in this process, where they need no Ray."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", "study.cli"]
        return subprocess.CompletedProcess(command, 0, command_line.here(*command[3:]))

    monkeypatch.setattr(stages, "subprocess", SimpleNamespace(run=run))
    found = stages.study(here)
    assert found["audit"] == "clean"
    assert {label: counts["complete"] for label, counts in found["trials"]["methods"].items()} == {
        "cross_entropy": 2,
        "mixup": 2,
    }


def test_a_trained_model_is_the_same_where_it_is_brought(here: argparse.Namespace) -> None:
    stages.trial(here)
    assert stages.verified(here.out, here)["largest difference"] < 1e-5


@pytest.mark.slow
@pytest.mark.platform
def test_the_ladder(here: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of airbench too, which is no dependency: an arm that does not start leaves the others."""
    monkeypatch.setattr(throughput, "has_airbench", lambda options: True)
    # Each is a process, which imports for seconds; of other precisions are the Learner's tests.
    arms = ["learner", "bound bfloat16"]
    monkeypatch.setattr(throughput, "ON_CPU", ("loader", "former", *arms))
    found = stages.ladder("airbench")(here)
    assert found.pop("airbench") == (
        "did not start: ModuleNotFoundError: No module named 'airbench' (exit code 1)"
    )
    assert list(found) == ["loader", *arms] and min(found.values()) > 0


def test_it_goes_on_where_it_stopped_and_a_failure_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage that fails does so before it imports anything."""
    monkeypatch.setattr(stages, "STAGES", dict.fromkeys(["first", "inventory", "third"]))
    python = tmp_path / "python"
    fails = "*'--stage third '*) echo \"KeyError: 'third'\" >&2; exit 1"
    python.write_text(f'#!/bin/sh\ncase "$*" in {fails};; esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    given = options(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / gpu.FILE).write_text(
        '{"stage": "first", "seconds": 1.0, "images/s": 12345.678}\n'
    )
    assert gpu.run(given) == 1
    first, second, third = gpu.lines(tmp_path / "out" / gpu.FILE)
    assert (
        first["images/s"] == 12345.678
        and second["torch"]
        and "KeyError: 'third'" in third["failed"]
    )
    assert gpu.table([first]).splitlines()[-1] == "| first | 1 | images/s: 1.235e+04 |"
    assert gpu.run(given) == 1 and len(gpu.lines(tmp_path / "state" / gpu.FILE)) == 3
    assert json.dumps(third)


def test_a_stage_that_was_cut_short_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(tmp_path)
    assert gpu.played("inventory", given, 0.01) is None
    monkeypatch.setattr(gpu, "LONGEST", 0.01)
    found = gpu.played("inventory", given, 0.01)
    assert found is not None and found["failed"] == "longer than 0 s"
    monkeypatch.setattr(gpu, "played", lambda *asked: None)
    assert gpu.run(given) == 0 and gpu.lines(tmp_path / "state" / gpu.FILE) == []


def test_a_stage_that_takes_too_long_ends_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the shell starts hears no interrupt, and holds the pipe: its end is the other's."""
    monkeypatch.setattr(gpu, "GRACE", 1.0)
    command = ["sh", "-c", f"sleep 600 & touch {tmp_path}/begun; wait"]
    stage = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    while not (tmp_path / "begun").exists():
        time.sleep(0.05)
    gpu._end(stage)
    assert stage.returncode is not None and stage.stdout is not None and stage.stdout.closed
