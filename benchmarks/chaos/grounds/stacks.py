"""This machine, and trials that train as one program: two stacks at a time."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any, ClassVar

from benchmarks.chaos.grounds.local import actor_sigkill, driver_sigkill
from benchmarks.chaos.stage import Ground, Stage, Strike, by_kind


def both_sigkill(stage: Stage) -> Strike:
    """The driver is gone, and all that trains."""
    actors = stage.actors()
    pid = stage.signal_driver(signal.SIGKILL)
    for each in actors:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    stage.start()
    return Strike(pid, taken_up=2)


class Stacks(Ground):
    """Two numbers of three methods in a stack, which lasts some seconds."""

    faults: ClassVar = {
        f"stacked_{kind}": fault
        for kind, fault in by_kind(driver_sigkill, actor_sigkill, both_sigkill).items()
    }
    study: ClassVar[dict[str, Any]] = {
        "model": {"name": "mlp", "width": 256},
        "stack": 6,
        "trials": 8,
        "epochs": 120,
        "checkpoint_seconds": 0.5,
    }
