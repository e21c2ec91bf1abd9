"""This machine alone, on which Ray's own processes stand still for a minute, or end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from benchmarks.chaos.processes import command_line, wait_for
from benchmarks.chaos.stage import INTERRUPTED, Ground, Seen, Stage, Strike, by_kind

STOPPED_SECONDS = 60.0
START_SECONDS = 240.0
STARTS_SECONDS = 4.0  # from the control store's start until Tune's, at least
END_SECONDS = 120.0
# What a driver says then.
LOST, UNSTARTED = "stopped by the loss of Ray's", "Ray did not start here"
AGAIN = "starting Ray again"
CONTROL_STORE, RAYLET = "gcs/gcs_server", "raylet/raylet"


def control_store_stopped(stage: Stage) -> Strike:
    """The control store stands still for a minute: the run says so, and goes on."""
    return _stopped(stage, CONTROL_STORE)


def raylet_stopped(stage: Stage) -> Strike:
    """The raylet stands still for a minute: the run goes on."""
    return _stopped(stage, RAYLET)


def control_store_killed(stage: Stage) -> Strike:
    """The control store is gone: the run ends, and says that it can be resumed."""
    return _killed(stage, CONTROL_STORE)


def raylet_killed(stage: Stage) -> Strike:
    """The raylet is gone: the run ends, and says that it can be resumed."""
    return _killed(stage, RAYLET)


def store_before_tune(stage: Stage) -> Strike:
    """The control store is gone while a run starts, before trials do: the run ends as when they
    train, or starts Ray again."""
    stage.signal_driver(signal.SIGTERM)
    seen = stage.seen()
    stage.start()
    if not wait_for(lambda: _processes(stage, CONTROL_STORE), START_SECONDS):
        raise TimeoutError(f"{START_SECONDS:g} s without a control store")
    time.sleep(stage.random.uniform(0, STARTS_SECONDS))
    pid, begun = _process(stage, CONTROL_STORE), stage.printed(AGAIN)
    return _ends(stage, pid, CONTROL_STORE, seen, lambda: stage.printed(AGAIN) > begun)


def _stopped(stage: Stage, program: str) -> Strike:
    pid = _process(stage, program)
    said = stage.printed("does not answer")
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(STOPPED_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def check() -> list[str]:
        wrong = [] if stage.alive or stage.complete() else ["the driver ended"]
        silent = (
            program == CONTROL_STORE
            and stage.printed("does not answer") == said
            and not stage.complete()
        )
        return [*wrong, "nothing was said"] if silent else wrong

    return Strike(pid, recovered=lambda: stage.alive or stage.complete(), check=check)


def _killed(stage: Stage, program: str) -> Strike:
    return _ends(stage, _process(stage, program), program, stage.seen())


def _ends(
    stage: Stage,
    pid: int,
    program: str,
    seen: Seen,
    goes_on: Callable[[], bool] = lambda: False,
) -> Strike:
    before = _said(stage)
    stage.driver_may_end()
    os.kill(pid, signal.SIGKILL)
    if wait_for(lambda: goes_on() or not stage.alive, END_SECONDS) and goes_on():
        return Strike(pid, taken_up=2, seen=seen)
    stage.wait_for_end(END_SECONDS, f"the loss of {program}", INTERRUPTED)
    said = _said(stage) > before
    stage.start()
    return Strike(
        pid,
        taken_up=2,
        seen=seen,
        check=lambda: [] if said else ["the driver did not say what stopped it"],
    )


def _said(stage: Stage) -> int:
    return sum(map(stage.printed, (LOST, UNSTARTED)))


def _process(stage: Stage, program: str) -> int:
    found = _processes(stage, program)
    if len(found) != 1:
        raise ProcessLookupError
    return found[0]


def _processes(stage: Stage, program: str) -> list[int]:
    return [pid for pid in stage.processes() if program in command_line(pid).partition(" ")[0]]


class RayItself(Ground):
    """Trials of which some still train when a minute is over."""

    faults = by_kind(
        control_store_stopped,
        raylet_stopped,
        control_store_killed,
        raylet_killed,
        store_before_tune,
    )
    study: ClassVar[dict[str, Any]] = {"epochs": 400}
    most_faults = 5
