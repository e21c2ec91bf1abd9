"""A run shown on a console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from study.analysis.ranking import Rules
from study.store.trials import Trials
from study.terminal.progress import Progress
from study.terminal.steps import Steps

if TYPE_CHECKING:
    from study.schema.spec import StudySpec


class ConsoleDisplay:
    """What `run_study` shows, on a console: a live view on a terminal, plain lines on a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._steps = Steps(console)
        self._latest: Steps | Progress = self._steps

    def say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)

    def waiting(self, line: str | None) -> None:
        self._latest.waiting(line)

    def steps(self) -> Steps:
        self._latest = self._steps = Steps(self._console)
        return self._steps

    def following(self, spec: StudySpec, records: Trials, rules: Rules) -> Progress:
        self._latest = progress = Progress(spec, records, self._console, self._steps, rules)
        return progress
