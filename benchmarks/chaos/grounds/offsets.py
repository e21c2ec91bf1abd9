"""This machine with short runs that are asked to go at one of sixteen moments between
their start and last word."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any, ClassVar

from benchmarks.chaos.stage import INTERRUPTED, Ground, Stage, Strike, by_kind

OFFSETS = 16
END_SECONDS = 60.0
PYTHON_SECONDS = 0.3  # until Python itself has started, a signal ends it


def sigterm_offset(stage: Stage) -> Strike:
    """A run of a few new trials, until SIGTERM; then one to the end, whose length says when
    the next is to strike."""
    ground = _ground(stage)
    place = (ground.struck + stage.random.random()) / OFFSETS
    ground.struck = (ground.struck + 1) % OFFSETS
    stage.trials += 1
    stage.start()
    stage.driver_may_end()
    driver = stage.driver
    assert driver is not None
    time.sleep(max(PYTHON_SECONDS, place * ground.seconds))
    with suppress(ProcessLookupError):  # it was quicker than the one before
        os.kill(driver.pid, signal.SIGTERM)
    stage.wait_for_end(END_SECONDS, f"SIGTERM at {place:.0%} of a run", INTERRUPTED)
    began = time.monotonic()
    stage.start()
    return Strike(driver.pid, recovered=lambda: _ended(stage, began))


def _ended(stage: Stage, began: float) -> bool:
    """Whether the run to the end is over; its seconds are kept."""
    if stage.alive:
        return False
    _ground(stage).seconds = time.monotonic() - began
    return stage.complete()


def _ground(stage: Stage) -> Offsets:
    assert isinstance(stage.ground, Offsets)
    return stage.ground


class Offsets(Ground):
    """Few short trials."""

    faults = by_kind(sigterm_offset)
    study: ClassVar[dict[str, Any]] = {
        "model": {"name": "mlp", "width": 64},
        "methods": ["cross_entropy"],
        "epochs": 20,
        "trials": 1,
    }
    strikes_by_itself = True
    most_faults = OFFSETS

    struck = 0
    seconds = 20.0  # of a run that nobody disturbs, as the last one took
