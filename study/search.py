"""LedgerSearch: the Ray Searcher that asks and tells the ledger. Ray is told nothing the ledger does not know."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ray.tune import Callback
from ray.tune.search import Searcher

from study.ledger import Ledger
from study.records import TrialRecord, trial_directory
from study.stored import StoredStudy
from trainables.attempt import clear_checkpoints
from trainables.config import with_value
from trainables.trainable import Assignment


class Listener(Protocol):
    """Who hears of trials once the ledger knows: the live view, the tracking."""

    def started(self, record: TrialRecord) -> None:
        """An attempt at a trial begins."""

    def trained(self, record: TrialRecord, rows: list[dict[str, float]]) -> None:
        """A trial reported epochs."""

    def finished(self, record: TrialRecord) -> None:
        """A trial's result stands in the ledger."""


class Interrupted(Exception):
    """The run was asked to stop; its trials go on at the next run."""


@dataclass
class _Attempt:
    record: TrialRecord
    number: int


class LedgerSearch(Searcher):
    """Hands out what the ledger lacks, method after method in turn, until every budget is met."""

    def __init__(self, study: StoredStudy, ledger: Ledger, listeners: list[Listener]) -> None:
        super().__init__()
        self._spec, self._directory, self._ledger, self._listeners = study.spec, study.directory, ledger, listeners
        self._digest, self._versions = study.recorded["data_digest"], study.recorded["versions"]
        self._device = "cuda" if study.spec.resources.gpu > 0 else "cpu"
        spec = study.spec
        records = {variant.label: ledger.records(variant.label) for variant in spec.variants}
        self._asked = {label: len(found) for label, found in records.items()}
        # What a dead driver left RUNNING is taken up first, and whatever dies on us is put back here.
        self._again = deque(record for found in records.values() for record in found if record.state == "running")
        self._live: dict[str, _Attempt] = {}
        self.fault: Exception | None = None

    @property
    def outstanding(self) -> int:
        """How many trials are still to be handed out."""
        return len(self._again) + sum(max(0, self._spec.trials - asked) for asked in self._asked.values())

    def suggest(self, trial_id: str) -> Any:
        """One attempt for Ray; None while only running ones are left, FINISHED when there are none."""
        record = self._again.popleft() if self._again else self._ask()
        if record is None:
            return None if self._live else Searcher.FINISHED
        attempt = self._ledger.begin_attempt(record.label, record.number)
        self._live[trial_id] = _Attempt(record, attempt)
        return {"assignment": self._assignment(record, attempt).to_json()}

    def _ask(self) -> TrialRecord | None:
        """A new trial of the method that has the fewest, so that all advance together."""
        label = min(self._asked, key=lambda label: self._asked[label])
        if self._asked[label] >= self._spec.trials:
            return None
        self._asked[label] += 1
        space, sampler = self._spec.variant(label).space, self._spec.sampler
        return self._ledger.ask(label, space.distributions, sampler.name, sampler.seed)

    def _assignment(self, record: TrialRecord, attempt: int) -> Assignment:
        config = self._spec.trial_mapping(record.label)
        for path, value in record.params.items():
            config = with_value(config, path, value)
        return Assignment(
            trial=record.name,
            directory=str(trial_directory(self._directory, record.label, record.number)),
            attempt=attempt,
            config={**config, "number": record.number},
            checkpoint_seconds=self._spec.checkpoint_seconds,
            data_digest=self._digest,
            device=self._device,
            threads=max(1, int(self._spec.resources.cpu)),
        )

    def attempt_started(self, trial_id: str) -> None:
        """Ray has a place for it; until then it only waited."""
        for listener in self._listeners:
            listener.started(self._live[trial_id].record)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Epochs of a running trial."""
        self._guarded(lambda: self._trained(trial_id, json.loads(result["report"])["rows"]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial ended by itself; one whose process died (`error`) is for `attempt_died`, which knows why."""
        if not error and result is not None:
            report = json.loads(result["report"])
            self._guarded(lambda: self._finish(trial_id, report["rows"], report["outcome"]))

    def attempt_died(self, trial_id: str, reason: str) -> None:
        """A process died under its trial: hand the trial out again, or FAIL it when that is no use."""
        self._guarded(lambda: self._again_or_fail(trial_id, reason))

    def _trained(self, trial_id: str, rows: list[dict[str, float]]) -> None:
        for listener in self._listeners:
            listener.trained(self._live[trial_id].record, rows)

    def _finish(self, trial_id: str, rows: list[dict[str, float]], outcome: dict[str, Any]) -> None:
        attempt = self._live.pop(trial_id)
        label, number = attempt.record.label, attempt.record.number
        told = {**outcome, "attempt": attempt.number, "device": self._device, "versions": self._versions}
        record = self._ledger.tell(label, number, told, self._spec.objectives)
        clear_checkpoints(trial_directory(self._directory, label, number))
        for listener in self._listeners:
            listener.trained(record, rows)
            listener.finished(record)

    def _again_or_fail(self, trial_id: str, reason: str) -> None:
        record = self._live[trial_id].record
        if self._ledger.died(record.label, record.number):
            del self._live[trial_id]
            self._again.append(record)
        else:
            self._finish(trial_id, [], {"state": "failed", "reason": reason})

    def _guarded(self, act: Callable[[], None]) -> None:
        """Ray turns an exception here into a failed *trial*; the ledger's trouble is the run's."""
        try:
            act()
        except Exception as error:
            self.fault = error

    # Ray would save searchers with its own snapshots; ours has nothing that is not in the ledger.
    def save(self, checkpoint_path: str) -> None:
        """Nothing to save."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Searcher, ()


class Watch(Callback):
    """Brings to the search what Ray tells callbacks only, and ends the run when asked to."""

    def __init__(self, search: LedgerSearch, stop_requested: Callable[[], bool]) -> None:
        self._search, self._stop_requested = search, stop_requested

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial begins in its process."""
        self._search.attempt_started(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial's process is gone."""
        error = trial.get_pickled_error()
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        self._search.attempt_died(trial.trial_id, f"its process died: {first_line[:300]}")

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Between two events of the loop: the place from which an exception ends the run."""
        if self._search.fault is not None:
            raise self._search.fault
        if self._stop_requested():
            raise Interrupted

    def __reduce__(self) -> tuple[Any, ...]:
        return Callback, ()
