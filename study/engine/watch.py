"""Watch: Ray Tune's events for the search, from its callbacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.tune import Callback
from ray.tune.experiment import Trial

from study.engine.search import LedgerSearch
from study.machines.ray_compat import actor_id_of, actor_of


class Interrupted(Exception):
    """The run was asked to stop; its trials resume in the next run."""


class Watch(Callback):
    """Forwards callback events to the search, kills hanging trials, and ends the run on request."""

    def __init__(self, search: LedgerSearch, stop_requested: Callable[[], bool]) -> None:
        self._search = search
        self._stop_requested = stop_requested
        self._running: dict[str, Trial] = {}  # Tune's trials, by id
        self._actors: set[str] = set()  # the ids of processes that have trained

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._running[trial.trial_id] = trial
        actor = actor_id_of(trial)
        self._search.attempt_started(trial.trial_id, actor not in self._actors, actor)
        self._actors.add(actor)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._running.pop(trial.trial_id, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._running.pop(trial.trial_id, None)
        # Not `get_pickled_error`: it reads from Tune's snapshots, which are off.
        text = Path(trial.error_file).read_text(errors="replace") if trial.error_file else ""
        message = text.partition("\n")[2]  # Tune's own first line: how many, and when
        self._search.attempt_died(trial.trial_id, message)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Called between events: an exception raised here ends the run."""
        self._search.look()
        for trial_id in self._search.overdue():
            ray.kill(actor_of(self._running[trial_id]))
        if self._search.fault is not None:
            raise self._search.fault
        if self._stop_requested():
            raise Interrupted

    def __reduce__(self) -> tuple[Any, ...]:
        return Callback, ()
