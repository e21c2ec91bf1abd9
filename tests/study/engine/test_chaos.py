"""A short part of `make chaos`: the faults users meet most, in two studies, and every proof after each."""

import random
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.chaos.__main__ import play
from benchmarks.chaos.grounds.database import Database, connection_dropped
from benchmarks.chaos.grounds.local import actor_sigkill, half_written_checkpoint
from benchmarks.chaos.grounds.stops import Stops, all_signalled
from benchmarks.chaos.grounds.tracking import Tracking, mlflow_lost_answer
from benchmarks.chaos.stage import Ground, by_kind

pytestmark = pytest.mark.slow


class Several(Stops, Tracking):
    """An MLflow server that loses answers, under a study whose trials last."""

    # Drivers alone are killed in test_run_killed.
    faults = by_kind(actor_sigkill, half_written_checkpoint, mlflow_lost_answer, all_signalled)
    study: ClassVar = {"trials": 1, "epochs": 25, "checkpoint_seconds": 0.3}

    @classmethod
    def refusal(cls) -> str | None:
        return None  # a compiler is for other faults


class Dropped(Database):
    """As short."""

    faults = by_kind(connection_dropped)
    study: ClassVar = Several.study


@pytest.mark.parametrize("ground", [Several, Dropped])
def test_faults_one_after_another_in_one_study(tmp_path: Path, ground: type[Ground]) -> None:
    if why := ground.refusal():
        pytest.skip(f"no faults of {ground.__name__}: {why}")
    kinds = list(ground.faults)
    rng = random.Random(7)
    rng.shuffle(kinds)
    lines: list[dict[str, Any]] = list(play(ground, kinds, "chaos", rng))
    assert [line["kind"] for line in lines] == [*kinds, "end"]
    assert [line for line in lines if line["problems"] or not line["audit"]["clean"]] == []
    end = lines[-1]["audit"]
    assert end["planned"] >= 3 and end["lost"] == end["duplicated"] == 0
