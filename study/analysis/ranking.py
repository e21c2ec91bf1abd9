"""Which trials of a study count, and how they rank: the one place that front, knee, best and every choice go through.

A complete trial is set aside if it guesses or violates a constraint. It stays in the ledger and is shown as set aside;
it is on no front, is never selected and never confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from study.analysis.pareto import (
    Costs,
    complete,
    front,
    hypervolume,
    knee,
    trial_costs,
    worst_point,
)
from study.schema.condition import ROUNDING, Condition
from study.schema.objective import Objective, as_served
from study.store.files import PREDICTIONS
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables.fields import FieldError
from trainables.files.arrays import read_arrays

GUESSES = 0.05  # significance of the test against the most frequent class
Reasons = dict[str, str]  # why a trial is set aside, by name


@dataclass(frozen=True)
class Rules:
    """What a trial must meet to count, for trials measured on one validation split."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Condition, ...] = ()
    majority: float = 0.0  # fraction of the most frequent class
    samples: int = 0

    @cached_property
    def least_accuracy(self) -> float:
        """The smallest accuracy significantly above `majority`: a one-sided binomial test at 5%."""
        from scipy.special import betainc

        right = np.arange(1, self.samples + 1)
        # P(X >= k) for X ~ Binomial(n, p) is the regularized incomplete beta function I_p(k, n - k + 1).
        significant = betainc(right, self.samples - right + 1, self.majority) <= GUESSES
        return float(right[significant.argmax()] / self.samples) if significant.any() else np.inf

    def guesses(self, record: TrialRecord) -> bool:
        """Whether it is not significantly more accurate than always predicting the most frequent class."""
        accuracy = record.metrics.get("accuracy")
        # Half a sample: an accuracy is a mean of float32 values.
        return (
            bool(self.samples)
            and accuracy is not None
            and accuracy < self.least_accuracy - 0.5 / self.samples
        )

    def best(
        self, records: Sequence[TrialRecord], before: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """The best value of each objective among the complete trials that do not guess, and those `before`."""
        found = dict(before or {})
        for record in complete(records):
            if not self.guesses(record):
                for objective in self.objectives:
                    better = max if objective.direction == "maximize" else min
                    value = record.metrics[objective.metric]
                    found[objective.metric] = better(value, found.get(objective.metric, value))
        return found

    def set_aside(
        self, records: Sequence[TrialRecord], best: Mapping[str, float] | None = None
    ) -> Reasons:
        """Why complete trials do not count. best: of the whole study, if `records` is a part of it."""
        best = self.best(records) if best is None else best
        return {
            record.name: reason
            for record in complete(records)
            if (reason := self._reason(record, best))
        }

    def _reason(self, record: TrialRecord, best: Mapping[str, float]) -> str:
        if self.guesses(record):
            return (
                f"guesses: accuracy {record.metrics['accuracy']:.4f} is not significantly above the"
                f" {self.majority:.4f} of always predicting the most frequent class"
            )
        for condition in self.constraints:
            if not condition.holds(record.metrics, best):
                found = record.metrics.get(condition.metric)
                value = "was not measured" if found is None else f"is {found:.4f}"
                limit = (
                    f" ({condition.comparison} {condition.limit(best):.4f})"
                    if condition.relative
                    else ""
                )
                return f"{condition.metric} {value}, but the study wants {condition}{limit}"
        return ""

    def violations(
        self, values: Mapping[str, float], best: Mapping[str, float]
    ) -> dict[str, float]:
        """By how much metrics violate each rule: above 0 where they do. What was not measured violates by 1."""
        found = {}
        if self.samples:
            found["guesses"] = (
                self.least_accuracy - 0.5 / self.samples - values.get("accuracy", math.inf)
            )
        for condition in self.constraints:
            by = 1.0
            if condition.relative and condition.metric not in best:  # so far all guess
                by = 0.0
            elif condition.metric in values:
                sign = -1.0 if condition.comparison.startswith(">") else 1.0
                by = sign * (values[condition.metric] - condition.limit(best))
                by = min(by, 0.0) if condition.holds(values, best) else max(by, ROUNDING)
            found[str(condition)] = by
        return found

    def eligible(
        self, records: Sequence[TrialRecord], best: Mapping[str, float] | None = None
    ) -> list[TrialRecord]:
        """The complete trials that count."""
        aside = self.set_aside(records, best)
        return [record for record in complete(records) if record.name not in aside]


def rules_of(study: Study, records: Sequence[TrialRecord]) -> Rules:
    """The rules of a study; `records` give the labels of one that did not record how frequent its classes are."""
    if not complete(records) and "sizes" not in study.recorded:  # it was not run yet
        return Rules(study.objectives, study.constraints)
    majority = study.recorded.get("majority")
    if majority is None:
        majority = _majority(study, records)
    return Rules(
        study.objectives, study.constraints, majority, study.recorded["sizes"]["validation"]
    )


def _majority(study: Study, records: Sequence[TrialRecord]) -> float:
    """From the labels of the first stored predictions; without any, that of equally frequent classes, the least."""
    for record in complete(records):
        try:
            labels = read_arrays(
                study.files(record) / PREDICTIONS, "the trial's predictions", only=("labels",)
            )["labels"]
            return float(np.bincount(labels).max() / len(labels))
        except (FieldError, ValueError, KeyError):
            continue
    return 1 / len(study.recorded["classes"])


@dataclass(frozen=True)
class Ranking:
    """The trials of a study, ranked. `records` must be all of them: `best` is of the whole study."""

    study: Study
    records: Sequence[TrialRecord]

    @cached_property
    def rules(self) -> Rules:
        return rules_of(self.study, self.records)

    @cached_property
    def set_aside(self) -> Reasons:
        return self.rules.set_aside(self.records)

    @cached_property
    def eligible(self) -> list[TrialRecord]:
        return [record for record in complete(self.records) if record.name not in self.set_aside]

    @cached_property
    def front(self) -> list[TrialRecord]:
        """The Pareto front of the study's objectives."""
        return front(self.eligible, self.study.objectives)

    @cached_property
    def knee(self) -> TrialRecord | None:
        """The best compromise of the objectives as the registered model has them."""
        return self.knee_among(self.eligible)

    def knee_among(self, records: Sequence[TrialRecord]) -> TrialRecord | None:
        served = [
            record
            for record in records
            if all(one.metric in record.metrics for one in self.study.served)
        ]
        return knee(front(served, self.study.served), self.study.served)

    @cached_property
    def reference(self) -> Costs:
        """The hypervolume's reference point: per objective the worst value of the defaults that count.

        Fixed once all defaults are done, and judged among themselves, so that later trials do not move it. Until then,
        or if none counts, the metrics' own worst values.
        """
        if not self.defaults_that_count:
            return worst_point(self.study.objectives, len(self.study.recorded["classes"]))
        points = [trial_costs(record, self.study.objectives) for record in self.defaults_that_count]
        return tuple(max(column) for column in zip(*points, strict=True))

    @cached_property
    def defaults_that_count(self) -> list[TrialRecord]:
        """Judged among themselves; none until all ended."""
        return self.rules.eligible(self.defaults or [])

    @cached_property
    def defaults(self) -> list[TrialRecord] | None:
        """The trials of the settings tried first, of a method without any its first trial; None until all ended."""
        found = []
        for label in self.study.labels:
            space = self.study.recorded_spaces.get(label)
            first = max(1, len((space.defaults if space is not None else None) or []))
            numbers = range(min(first, self.study.planned))
            ended = {record.number: record for record in self.records if record.label == label}
            for number in numbers:
                if number not in ended or ended[number].state == "running":
                    return None
                found.append(ended[number])
        return found

    @cached_property
    def hypervolume(self) -> float:
        return hypervolume(self.front, self.study.objectives, self.reference)

    def reference_values(self) -> dict[str, float]:
        """The reference point in the metrics' own units."""
        objectives = self.study.objectives
        return {
            one.metric: one.sign * cost
            for one, cost in zip(objectives, self.reference, strict=True)
        }


def served_with_nll(study: Study) -> tuple[Objective, ...]:
    """The objectives as served, and NLL, by which ties between trials are broken."""
    nll = Objective(as_served("nll", study.serves), "minimize")
    return tuple({one.metric: one for one in (*study.served, nll)}.values())


def on_a_front(study: Study, eligible: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials whose models `keep_models: front` and `prune` keep: what a choice may take.

    On the front of the objectives; of the objectives as served, for the knee; or of these and NLL, which breaks ties.
    """
    found: dict[str, TrialRecord] = {}
    for objectives in (study.objectives, study.served, served_with_nll(study)):
        measured = (
            record for record in eligible if all(one.metric in record.metrics for one in objectives)
        )
        found |= {record.name: record for record in front(measured, objectives)}
    return list(found.values())


def set_aside_line(reasons: Reasons) -> str:
    """`7 trials are set aside: 2 guess, 5 violate a constraint.`; empty for none."""
    if not reasons:
        return ""
    guessing = sum(reason.startswith("guesses") for reason in reasons.values())
    violating = len(reasons) - guessing
    parts = [f"{guessing} guess{'es' * (guessing == 1)}"] if guessing else []
    parts += [f"{violating} violate{'s' * (violating == 1)} a constraint"] if violating else []
    return f"{len(reasons)} trial{'s are' if len(reasons) > 1 else ' is'} set aside: {', '.join(parts)}."
