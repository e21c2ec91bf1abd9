"""What a confirmation will train and measure, before it does."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from study.answer.confirmation import Results, candidate_of, default_label
from study.schema.spec import StudySpec
from study.store.trials import TrialRecord


@dataclass(frozen=True)
class Work:
    """candidates, defaults: names of what is confirmed. seeds: of each. trainings: those left, and
    their `seconds`, if any trial tells. openings: of the test split, one for each model that is
    not measured yet."""

    candidates: tuple[str, ...]
    defaults: tuple[str, ...]
    seeds: int
    trainings: int
    seconds: float | None
    openings: int


@dataclass(frozen=True)
class Chosen:
    """What is confirmed. spec: that retrains it; the study's own where `is_own`: it has no search,
    and its own trials are measured."""

    found: Results
    spec: StudySpec
    is_own: bool

    def work(self) -> Work:
        before = self.found.confirmation
        tested = 0 if before is None else sum(map(len, before.tested.values()))
        if self.is_own:
            models = len(self.found.records.complete)
            return Work((), (), self.spec.trials, 0, 0.0, models - tested)
        searched = {record.name: record for record in self.found.records}
        candidates: list[str] = []
        defaults: list[str] = []
        trainings = 0
        openings = -tested
        seconds: list[float | None] = []
        for variant in self.spec.variants:
            label = variant.label
            trial = candidate_of(variant.to_mapping(), searched)
            (defaults if trial is None else candidates).append(trial.name if trial else label)
            done = () if before is None else before.records.finished.of(label)
            left = self.spec.trials - len(done)
            trainings += left
            openings += left + sum(record.state == "complete" for record in done)
            seconds += [self._seconds_of(label, trial)] * left
        known = None if None in seconds else sum(filter(None, seconds))
        return Work(
            tuple(candidates), tuple(defaults), self.spec.trials, trainings, known, openings
        )

    def _seconds_of(self, label: str, trial: TrialRecord | None) -> float | None:
        """About what a training takes: as its trial did, else those of its method, else all."""
        if trial is not None and trial.seconds is not None:
            return trial.seconds
        complete = [each for each in self.found.records.complete if each.seconds is not None]
        alike = [each for each in complete if default_label(each.label) == label]
        taken = [each.seconds or 0.0 for each in alike or complete]
        return statistics.fmean(taken) if taken else None
