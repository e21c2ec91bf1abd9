"""Four slots on this machine and early stopping: the driver is gone at each
moment of a decision."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.chaos.grounds.local import actor_sigkill, driver_sigkill
from benchmarks.chaos.processes import wait_for
from benchmarks.chaos.stage import Fault, Ground, Stage, Strike, by_kind

MOMENT, NOTE = "CALSTUDY_CHAOS_MOMENT", "CALSTUDY_CHAOS_NOTE"
STRIKE_SECONDS = 120.0


def _fault(moment: str) -> Fault:
    """The next driver kills itself at that moment of the first trial that is to stop;
    the one after it goes on."""

    def struck(stage: Stage) -> Strike:
        stage.stop_driver()
        note = stage.ground.directory / "note"
        note.unlink(missing_ok=True)
        stage.next_environment = {MOMENT: moment, NOTE: str(note)}
        stage.start()
        stage.driver_may_end()
        driver = stage.driver
        assert driver is not None
        if (
            not wait_for(lambda: not stage.alive, STRIKE_SECONDS)
            or driver.returncode != -signal.SIGKILL
        ):
            raise ProcessLookupError  # no trial was left to stop
        seen, name = stage.seen(), note.read_text()
        stage.start()

        def check() -> list[str]:
            record, attempts = stage.records()[name], seen.attempts[name]
            wrong = [] if record.state == "pruned" else [f"{name} is {record.state}, not pruned"]
            if moment != "before_decision" and record.attempt != attempts[-1].number:
                wrong.append(f"{name} was trained again although it had been decided that it stops")
            return wrong

        return Strike(
            driver.pid,
            seen=seen,
            recovered=lambda: stage.records()[name].state != "running",
            check=check,
        )

    struck.__name__ = f"killed_{moment}"
    return struck


class Rungs(Ground):
    """Short trials, of which half are stopped."""

    faults: ClassVar = by_kind(
        *(_fault(moment) for moment in ("before_decision", "after_decision", "after_outcome")),
        driver_sigkill,
        actor_sigkill,
    )
    study: ClassVar[dict[str, Any]] = {
        "model": {"name": "mlp", "width": 128},
        "methods": ["focal", "mbls"],
        "trials": 16,
        "epochs": 12,
        "checkpoint_seconds": 0.05,
        "early_stopping": {"at": 0.33, "keep": 0.5, "by": ["brier", "ece"]},
    }
    words = ("--cpus", "4")

    def popen(
        self, command: list[str], environment: dict[str, str], **options: Any
    ) -> subprocess.Popen[Any]:
        """The driver, or one that kills itself."""
        if MOMENT in environment:
            command = [
                "benchmarks.chaos.grounds.rungs" if word == "study.cli" else word
                for word in command
            ]
        return super().popen(command, environment, **options)


def main() -> None:
    """`calstudy`, until the moment of the environment."""
    from study import cli
    from study.store.ledger import Ledger

    moment, note = os.environ[MOMENT], Path(os.environ[NOTE])
    when, what = moment.split("_")
    name = {"decision": "decide", "outcome": "_close"}[what]
    original = getattr(Ledger, name)

    def dies(ledger: Ledger, label: str, number: int, *words: Any) -> None:
        stops = not words[-1].goes_on if what == "decision" else words[0].state == "pruned"
        if stops:
            note.write_text(f"{label}/{number:04d}")
        # Between its outcome and its state: `_close` sets the state alone.
        if stops and (when == "before" or what == "outcome"):
            os.kill(os.getpid(), signal.SIGKILL)
        original(ledger, label, number, *words)
        if stops:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(Ledger, name, dies)
    cli.main(sys.argv[1:])


if __name__ == "__main__":
    main()
