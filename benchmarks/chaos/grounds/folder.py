"""This machine with drivers that start where files lie named like every library:
none of them may run."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

from benchmarks.chaos.canaries import lay
from benchmarks.chaos.stage import CHECKOUT, Ground, Stage, Strike, by_kind


def cwd_canary(stage: Stage) -> Strike:
    """The driver is gone, and the next one starts in such a folder."""
    pid = stage.signal_driver(stage.random.choice([signal.SIGKILL, signal.SIGTERM]))
    stage.start()
    return Strike(pid, taken_up=2, check=lambda: _imported(stage))


def _imported(stage: Stage) -> list[str]:
    assert isinstance(stage.ground, Folder)
    trace = stage.ground.trace
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [f"imported from the working directory: {line}" for line in lines[:3]]


class Folder(Ground):
    """Two slots; the working directory of every process is the folder."""

    faults = by_kind(cwd_canary)

    def __enter__(self) -> Ground:
        super().__enter__()
        self.folder, self.trace = self.directory / "folder", self.directory / "trace"
        lay(self.folder, self.trace)
        return self

    def environment(self) -> dict[str, str]:
        paths = filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")])
        return {**super().environment(), "PYTHONPATH": os.pathsep.join(paths)}

    def popen(
        self, command: list[str], environment: dict[str, str], **options: Any
    ) -> subprocess.Popen[Any]:
        python, *words = command
        safe = [python, "-P", *words]  # as the installed command, whose own folder comes first
        return subprocess.Popen(safe, cwd=self.folder, env={**os.environ, **environment}, **options)
