"""One attempt at a stack: its trials train as one program, from the beginning to their end, and
each reports for itself. No Ray here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from trainables.config import TrialConfig
from trainables.outputs.outcome import Outcome, Report
from trainables.plugins import finding_for, raised_in
from trainables.training.attempt import Assignment, Attempt, TimeLimit, label_of
from trainables.training.device import NodeUnfit
from trainables.training.learner import Diverged, Learner
from trainables.training.stack import Stack


class StackedAttempt:
    """Trains what assignments say, as an `Attempt` does for one trial.

    A trial that diverges, or takes too long, ends by itself. What ends the stack ends its trials:
    an error that may be another's is no result of theirs.
    """

    def __init__(self, assignments: Sequence[Assignment]) -> None:
        """Only store the assignments, as `Attempt` does."""
        self._assignments = assignments
        self._attempts = {row.trial: Attempt(row) for row in assignments if not row.ended}
        self._learners: dict[str, Learner] = {}  # of these
        self._stack: Stack | None = None
        # What the next reports tell.
        self._rows: dict[str, list[dict[str, float]]] = {}
        self._outcomes: dict[str, Outcome] = {}

    @property
    def is_over(self) -> bool:
        return not self._attempts

    def prepare(self) -> None:
        """Have the data on this node."""
        next(iter(self._attempts.values())).prepare()

    def leave(self) -> None:
        """Give the program of a stack at its end to the next one."""
        if self._stack is not None:
            self._stack.leave()

    def reports(self) -> dict[str, Report]:
        """Train epochs for one report of each trial; its last one has the outcome."""
        at_work = dict(self._attempts)
        self._rows = {name: [] for name in at_work}
        self._outcomes = {}
        try:
            self._train()
        except NodeUnfit:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and raised_in(error) is None:
                raise
            others = len(self._attempts) > 1
            for name in list(self._attempts):
                self._end(name, error)
                if others and self._outcomes[name].state == "failed":
                    # Whose error it is shows where they train alone.
                    self._outcomes[name] = replace(self._outcomes[name], state="interrupted")
        return {
            name: Report(self._rows[name], self._outcomes.get(name), None, attempt.used or None)
            for name, attempt in at_work.items()
        }

    def _train(self) -> None:
        if self._stack is None:
            self._stack = self._start()
            if any(attempt.used for attempt in self._attempts.values()):
                return
        stack = self._stack
        before = stack.epoch
        until = time.monotonic() + self._assignments[0].step_seconds
        while not stack.finished and (stack.epoch == before or time.monotonic() < until):
            self._advance(stack)
        if stack.finished:
            for name in list(self._attempts):
                self._finish(name)

    def _start(self) -> Stack:
        for name, attempt in self._attempts.items():
            with finding_for(label_of(name)):
                config, device = attempt.checked()
        configs = [TrialConfig.from_mapping(row.config) for row in self._assignments]
        stack = Stack(configs, attempt.data(config, device), device)
        for row, learner in zip(self._assignments, stack.rows, strict=True):
            if row.ended:
                stack.drop(learner)
            else:
                self._learners[row.trial] = learner
        return stack

    def _advance(self, stack: Stack) -> None:
        """Train one epoch, which may end trials."""
        ended = stack.advance()
        for name, attempt in list(self._attempts.items()):
            learner = self._learners[name]
            try:
                if learner in ended:
                    raise ended[learner]
                self._rows[name] += attempt.noted(learner, len(learner.history) - 1)
                if not stack.finished:
                    attempt.check_time(learner)
            except (Diverged, TimeLimit) as error:
                self._end(name, error)

    def _finish(self, name: str) -> None:
        """Write the trial's files."""
        attempt = self._attempts[name]
        self._learners[name].part()
        try:
            with finding_for(attempt.label):
                self._outcomes[name] = attempt.finish(self._learners[name])
                del self._attempts[name]
        except Exception as error:
            self._end(name, error)

    def _end(self, name: str, error: BaseException) -> None:
        """End a trial by an error."""
        learner = self._learners.get(name)
        self._outcomes[name] = self._attempts.pop(name).stopped_by(error)
        if self._stack is not None and learner in self._stack.training:
            self._stack.drop(learner)
