"""This machine with a finished study, whose ledger is in PostgreSQL, and its confirmation."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any, ClassVar

from benchmarks.chaos.grounds.database import Database
from benchmarks.chaos.processes import wait_for
from benchmarks.chaos.proofs import audited
from benchmarks.chaos.stage import AUDIT_SECONDS, FINISH_SECONDS, MISTAKE, Stage, Strike, by_kind
from study.store.study import open_directory

LATEST_SECONDS, MOST_AWAY_SECONDS = 25.0, 8.0
CONFIRM_SECONDS = 240.0


def postgres_restarted_confirming(stage: Stage) -> Strike:
    """The server restarts once or twice while `confirm` retrains with one more seed and
    opens the test split."""
    ground = stage.ground
    assert isinstance(ground, Confirming)
    stage.see_to_driver()
    wait_for(lambda: not stage.alive, FINISH_SECONDS)
    ground.seeds += 1
    words = [
        "confirm",
        stage.name,
        "--storage",
        str(ground.storage),
        "--top",
        "1",
        "--seeds",
        str(ground.seeds),
    ]
    command = [sys.executable, "-m", "study.cli", *words]
    with stage.output.open("a") as output:
        process = ground.popen(
            command, ground.environment(), stdout=output, stderr=subprocess.STDOUT
        )
    for _ in range(stage.random.choice([1, 2])):
        time.sleep(stage.random.uniform(0.0, LATEST_SECONDS))
        mode = stage.random.choice(["fast", "immediate", "kill"])
        ground.server.restart(mode, stage.random.uniform(0.0, MOST_AWAY_SECONDS))
    wrong: list[str] = []
    try:
        code: int | None = process.wait(CONFIRM_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
        wrong.append(f"confirm was still there after {CONFIRM_SECONDS:g} s")
    if code == MISTAKE:  # it was away when confirm first asked for it
        code = ground.popen(command, ground.environment()).wait(CONFIRM_SECONDS)
    wrong += [] if code == 0 else [f"confirm ended with exit {code}"]
    return Strike(process.pid, recovered=lambda: True, check=lambda: [*wrong, *_wrong_in(stage)])


def _wrong_in(stage: Stage) -> list[str]:
    """What the audit of the confirmation finds, and openings that came to nothing."""
    name = f"{stage.name}-confirm"
    report = audited(
        open_directory(stage.ground.storage / name, name), stage.ground.tracking, AUDIT_SECONDS
    )
    return [] if report["clean"] else [f"its audit: {report['off']}"]


class Confirming(Database):
    """A small search."""

    faults = by_kind(postgres_restarted_confirming)
    study: ClassVar[dict[str, Any]] = {
        "model": {"name": "mlp", "width": 128},
        "methods": ["cross_entropy"],
        "epochs": 40,
        "trials": 2,
    }
    strikes_by_itself = True
    most_faults = 5
    seeds = 0
