"""A short part of `make chaos`: the faults users meet most, in one study, and every proof after each."""

import random
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.chaos.__main__ import play
from benchmarks.chaos.grounds.local import Local, actor_sigkill, half_written_checkpoint
from benchmarks.chaos.grounds.tracking import Tracking, mlflow_lost_answer
from benchmarks.chaos.stage import by_kind

pytestmark = pytest.mark.slow


class Both(Tracking):
    """An MLflow server that loses answers, under a study whose trials last."""

    faults = by_kind(
        actor_sigkill, half_written_checkpoint, mlflow_lost_answer
    )  # drivers are killed in test_run_killed
    study: ClassVar = {**Local.study, "trials": 1, "epochs": 25, "checkpoint_seconds": 0.3}


def test_faults_one_after_another_in_one_study(tmp_path: Path) -> None:
    kinds = list(Both.faults)
    rng = random.Random(7)
    rng.shuffle(kinds)
    lines = list(play(Both, kinds, "chaos", rng))
    assert [line["kind"] for line in lines] == [*kinds, "end"]
    assert [line for line in lines if line["problems"] or not line["audit"]["clean"]] == []
    end = lines[-1]["audit"]
    assert end["planned"] >= 3 and end["lost"] == end["duplicated"] == 0
    assert all(line["repeated"] <= line["promised"] for line in lines)
