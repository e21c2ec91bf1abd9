"""This machine with a pipe that somebody reads the run's lines from: whole runs are
stopped, readers go away."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any, ClassVar

from benchmarks.chaos import preload
from benchmarks.chaos.contents import changes, contents
from benchmarks.chaos.processes import command_line, wait_for
from benchmarks.chaos.stage import INTERRUPTED, Ground, Stage, Strike, by_kind
from study.tracking.reader import read_runs

# Of many faults in a row: trials of a few seconds.
LIGHT: dict[str, Any] = {
    "model": {"name": "mlp", "width": 256},
    "epochs": 120,
    "trials": 5,
    "checkpoint_seconds": 0.5,
}
STOP_SECONDS = 20.0
# On a pipe a line comes every ten seconds, and the first that nobody reads says that nobody does.
SILENCE_SECONDS = 10.0
# What a stopped run leaves ends by itself, but not at the same instant.
REST_SECONDS = 10.0
NO_LOCKS = "no file locks"


def all_signalled(stage: Stage) -> Strike:
    """Everything that runs is asked to go at once: by Slurm, systemd or `timeout`, or by
    a terminal that closes."""
    number = stage.random.choice([signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    pid, words = stage.driver_pid(), f"stopped by {number.name}"
    reader, said, seen = _ground(stage).reader, stage.printed(words), stage.seen()
    assert reader is not None
    struck = [found for found in stage.processes() if found != reader.pid]
    stage.random.shuffle(struck)
    stage.driver_may_end()
    for found in struck:
        with suppress(ProcessLookupError):
            os.kill(found, number)
    stage.wait_for_end(STOP_SECONDS, f"{number.name} to all", INTERRUPTED)
    wrong = _left(stage)
    if not (stage.printed(words) > said or stage.complete()):
        wrong.append(f"its last word was not '{words}'")
    stage.start()
    return Strike(pid, taken_up=2, seen=seen, check=lambda: wrong)


def stdout_closed(stage: Stage) -> Strike:
    """Whoever reads the run's lines goes away, as `head` does, or an SSH session that breaks."""
    pid, reader, seen = stage.driver_pid(), _ground(stage).reader, stage.seen()
    assert reader is not None
    stage.driver_may_end()
    reader.kill()
    reader.wait()
    stage.wait_for_end(STOP_SECONDS + SILENCE_SECONDS, "a closed stdout", INTERRUPTED)
    wrong = _left(stage)
    stage.start()
    return Strike(pid, taken_up=2, seen=seen, check=lambda: wrong)


def twenty_signals(stage: Stage) -> Strike:
    """Somebody leans on Ctrl-C: twenty signals to the driver within two seconds."""
    pid, seen = stage.driver_pid(), stage.seen()
    number = stage.random.choice([signal.SIGINT, signal.SIGTERM])
    stage.driver_may_end()
    for _ in range(20):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        time.sleep(0.1)
    stage.wait_for_end(STOP_SECONDS, f"twenty {number.name}", INTERRUPTED)
    wrong = _left(stage)
    stage.start()
    return Strike(pid, taken_up=2, seen=seen, check=lambda: wrong)


def _left(stage: Stage) -> list[str]:
    """What is still there, or still said to be, although the run has ended."""
    wait_for(lambda: not stage.processes(), REST_SECONDS)
    wrong = [f"left alive: {pid} {command_line(pid)[:100]}" for pid in stage.processes()]
    study = stage.study()
    parents = [
        run.status for run in read_runs(study.tracking(None), study.name, study.id) if not run.trial
    ]
    expected = "FINISHED" if stage.complete() else "KILLED"
    return (
        wrong if parents == [expected] else [*wrong, f"its MLflow run is {parents}, not {expected}"]
    )


def flock_unavailable(stage: Stage) -> Strike:
    """The studies lie on a share that gives no locks. A ledger elsewhere has one beside it:
    there a warning is enough."""
    pid, seen = stage.stop_driver(), stage.seen()
    error = stage.random.choice([errno.ENOLCK, errno.EOPNOTSUPP])
    environment = preload.preloaded("no_flock", stage.ground.directory)
    environment |= {
        "CALSTUDY_NO_FLOCK": str(stage.ground.storage),
        "CALSTUDY_FLOCK_ERROR": str(error),
    }
    if stage.ground.ledger is not None:
        said = stage.printed(NO_LOCKS)
        stage.next_environment = environment
        stage.start()
        return Strike(
            pid,
            taken_up=2,
            seen=seen,
            check=lambda: [] if stage.printed(NO_LOCKS) > said else ["it did not warn"],
        )
    before = contents(stage.ground.storage)
    wrong = stage.refused(NO_LOCKS, environment)
    wrong += changes(before, contents(stage.ground.storage))
    stage.start()
    return Strike(pid, taken_up=2, seen=seen, check=lambda: wrong)


def _ground(stage: Stage) -> Stops:
    assert isinstance(stage.ground, Stops)
    return stage.ground


class Stops(Ground):
    """What drivers print goes through a pipe into the output."""

    faults = by_kind(all_signalled, stdout_closed, flock_unavailable, twenty_signals)
    # Long enough for several lines, so that a closed stdout is noticed.
    study: ClassVar = {**LIGHT, "trials": 15}
    reader: subprocess.Popen[Any] | None = None

    @classmethod
    def refusal(cls) -> str | None:
        return preload.refusal()

    def popen(
        self, command: list[str], environment: dict[str, str], **options: Any
    ) -> subprocess.Popen[Any]:
        output = options["stdout"]
        if self.reader is not None:
            self.reader.poll()  # the one before has ended with its driver
        self.reader = super().popen(["cat"], environment, stdin=subprocess.PIPE, stdout=output)
        assert self.reader.stdin is not None
        with self.reader.stdin as pipe:
            return super().popen(command, environment, stdout=pipe, stderr=output)
