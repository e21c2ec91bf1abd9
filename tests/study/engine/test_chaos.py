"""A short part of `make chaos`: the faults users meet most, in one study, and
every proof after each."""

import random
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.chaos.__main__ import play
from benchmarks.chaos.grounds.local import actor_sigkill, half_written_checkpoint
from benchmarks.chaos.grounds.stacks import Stacks
from benchmarks.chaos.stage import Ground, by_kind
from tests.gate import write_extensions
from tests.shared import with_empty_mlflow

pytestmark = [pytest.mark.slow, pytest.mark.platform]


class WithDatabase(Ground):
    """MLflow's database is there: to make it takes a run some seconds."""

    def __enter__(self) -> Ground:
        super().__enter__()
        with_empty_mlflow(("run", "chaos.yaml", "--storage", self.storage))
        return self


def test_faults_one_after_another_in_one_study(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    write_extensions(tmp_path / "own", gate, seconds=0.04)  # sixteen times an epoch

    class Several(WithDatabase):
        """This machine, and a study whose trials last until the faults are over."""

        # Drivers are killed in test_run_killed, everything is signalled in test_run_stopped, and an
        # MLflow server's answers are lost in test_projection.
        faults = by_kind(actor_sigkill, half_written_checkpoint)
        study: ClassVar = {
            "model": {"name": "mlp", "width": 64},
            "methods": ["patient"],
            "extensions": str(tmp_path / "own"),
            "epochs": 30,
            "checkpoint_seconds": 0.3,
        }

    kinds = list(Several.faults)
    # By this seed trials alone die, with the damaged checkpoint too. After a driver's death two
    # agents of its Ray look for it for a minute.
    rng = random.Random(2)
    rng.shuffle(kinds)
    assert kinds[0] == "half_written_checkpoint"
    lines: list[dict[str, Any]] = []
    for line in play(Several, kinds, "chaos", rng):
        lines.append(line)
        if len(lines) == len(kinds):
            gate.touch()
    assert [line["kind"] for line in lines] == [*kinds, "end"]
    assert [line for line in lines if line["problems"] or not line["audit"]["clean"]] == []
    end = lines[-1]["audit"]
    assert end["planned"] >= 3 and end["lost"] == end["duplicated"] == 0


class OfStacks(WithDatabase, Stacks):
    """One stack of six trials."""

    study: ClassVar = {**Stacks.study, "trials": 2}


def test_a_stack_whose_process_is_killed() -> None:
    """At the end, what it gave is compared with an undisturbed training, bit for bit."""
    kind = "stacked_actor_sigkill"
    fault, end = play(OfStacks, [kind], "chaos", random.Random(0))
    assert (fault["kind"], end["kind"]) == (kind, "end")
    assert fault["problems"] == end["problems"] == []
    assert fault["audit"]["clean"] and end["audit"]["clean"]
    assert end["audit"]["planned"] >= 6
    assert end["audit"]["lost"] == end["audit"]["duplicated"] == 0
