"""A short part of `make chaos`: the faults users meet most, in one study, and
every proof after each."""

import random
from typing import Any, ClassVar

import pytest

from benchmarks.chaos.__main__ import play
from benchmarks.chaos.grounds.local import actor_sigkill, half_written_checkpoint
from benchmarks.chaos.grounds.tracking import Tracking, mlflow_lost_answer
from benchmarks.chaos.stage import by_kind

pytestmark = pytest.mark.slow


class Several(Tracking):
    """An MLflow server that loses answers, under a study whose trials last."""

    # Drivers alone are killed in test_run_killed, everything is signalled in test_run_stopped, and
    # a database is restarted in test_run_database.
    faults = by_kind(actor_sigkill, half_written_checkpoint, mlflow_lost_answer)
    # It outlasts the faults.
    study: ClassVar = {"trials": 1, "epochs": 60, "checkpoint_seconds": 0.3}


def test_faults_one_after_another_in_one_study() -> None:
    kinds = list(Several.faults)
    # By this seed the driver dies first, with the damaged checkpoint: the minute in which two
    # agents of its Ray look for it passes while the other faults are played.
    rng = random.Random(2)
    rng.shuffle(kinds)
    assert kinds[0] == "half_written_checkpoint"
    lines: list[dict[str, Any]] = list(play(Several, kinds, "chaos", rng))
    assert [line["kind"] for line in lines] == [*kinds, "end"]
    assert [line for line in lines if line["problems"] or not line["audit"]["clean"]] == []
    end = lines[-1]["audit"]
    assert end["planned"] >= 3 and end["lost"] == end["duplicated"] == 0
