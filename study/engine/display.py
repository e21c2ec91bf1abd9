"""What a run needs of whoever shows it to people; `study.terminal.display` does on a console."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from study.analysis.ranking import Rules
from study.schema.spec import StudySpec
from study.store.trials import Listener, Trials


class ShowsSteps(Protocol):
    """Shows what is done before there are results."""

    def __call__(self, step: str) -> None:
        """A step begins; the one before is over."""

    def progress(self, done: int, total: int, noun: str = "images") -> None:
        """How many samples of the step are done. noun: what they are called."""

    def end(self) -> None:
        """The last step is over."""


class Display(Protocol):
    """Shows a run."""

    def say(self, line: str) -> None:
        """Show a line that stays."""

    def waiting(self, line: str | None) -> None:
        """What the run waits for; None: it goes on. May be called often, and by any thread."""

    def steps(self) -> AbstractContextManager[ShowsSteps]:
        """Steps that leave nothing behind."""

    def following(
        self, spec: StudySpec, records: Trials, rules: Rules
    ) -> AbstractContextManager[Listener]:
        """Follows the trials, from the last steps on. rules: which trials count."""
