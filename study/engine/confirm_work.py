"""What a confirmation will train and measure, before it does."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from study.answer.confirmation import Results, candidate_of, default_label
from study.answer.raced import when_it_ends
from study.schema.spec import StudySpec
from study.store.recorded import FIRST, Race
from study.store.trials import TrialRecord

USUAL = 4  # seeds of a model in a race, in the mean: 2.9 to 6, benchmarks/experiments/racing.py


@dataclass(frozen=True)
class Work:
    """candidates, defaults: names of what is confirmed. seeds: of each; in a race, at least.
    trainings: those left, in a race of the first seeds. usual: of a race that has not begun, as
    others took. seconds: of what is left, or of `usual`; None: no trial tells. openings: of the
    test split, one for each model that is not measured yet; None: a race decides how many. ends:
    when it ends."""

    candidates: tuple[str, ...]
    defaults: tuple[str, ...]
    seeds: int
    trainings: int
    seconds: float | None
    openings: int | None
    usual: int | None = None
    ends: str = ""


@dataclass(frozen=True)
class Chosen:
    """What is confirmed. spec: that retrains it; the study's own where `is_own`: it has no search,
    and its own trials are measured. race: how seeds are given out; None: each row has as many.
    calibrators: scored on test too."""

    found: Results
    spec: StudySpec
    is_own: bool
    race: Race | None = None
    calibrators: tuple[str, ...] = ()

    def work(self) -> Work:
        before = self.found.confirmation
        tested = 0 if before is None else sum(map(len, before.tested.values()))
        if self.is_own:
            models = len(self.found.records.complete)
            return Work((), (), self.spec.trials, 0, 0.0, models - tested)
        searched = {record.name: record for record in self.found.records}
        seeds = self.spec.trials if self.race is None else FIRST
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
            left = max(0, seeds - len(done))
            trainings += left
            openings += left + sum(record.state == "complete" for record in done)
            seconds += [self._seconds_of(label, trial)] * left
        known = None if None in seconds else sum(filter(None, seconds))
        rows = tuple(candidates), tuple(defaults)
        if self.race is None:
            return Work(*rows, seeds, trainings, known, openings)
        ends = when_it_ends(self.found.study, self.race)
        usual = None
        if before is None and trainings:
            most = self.race.trainings or math.inf
            usual = int(min(most, min(USUAL, self.race.at_most) * len(self.spec.variants)))
            known = known and known * usual / trainings
        return Work(*rows, seeds, trainings, known, None, usual, ends)

    def _seconds_of(self, label: str, trial: TrialRecord | None) -> float | None:
        """About what a training takes: as its trial did, else those of its method, else all."""
        if trial is not None and trial.seconds is not None:
            return trial.seconds
        complete = [each for each in self.found.records.complete if each.seconds is not None]
        alike = [each for each in complete if default_label(each.label) == label]
        taken = [each.seconds or 0.0 for each in alike or complete]
        return statistics.fmean(taken) if taken else None
