"""Which trials of a study count, and how they rank: front, knee, best and every choice ask here.

A complete trial is excluded if it guesses, violates a constraint, or is far worse than the best.
It stays in the ledger and is shown as excluded; it is on no front and is never selected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from study.analysis.guard import FAR_WORSE, Guard, guard_of
from study.analysis.guessing import above_majority, no_test
from study.analysis.left_out import are, some
from study.analysis.pareto import (
    Costs,
    complete,
    front,
    hypervolume,
    knee,
    measured_in,
    trial_costs,
    worst_point,
)
from study.analysis.rule import better_form
from study.schema.condition import ROUNDING, Condition
from study.schema.objective import EITHER, FORMS, Objective, as_served
from study.store.confirmed import added_later, confirming_study
from study.store.files import PREDICTIONS, equal_models
from study.store.other_objectives import LEFT_OUT
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials

Reasons = dict[str, str]  # why a trial is excluded, by name


@dataclass(frozen=True)
class Rules:
    """The rules that a trial must meet to count, on one validation split."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Condition, ...] = ()
    majority: float = 0.0  # fraction of the most frequent class
    samples: int = 0
    grouped: bool = False  # whether samples belong together
    least_of_groups: float | None = None  # `least_accuracy`, where there are groups
    guard: Guard | None = None

    @cached_property
    def least_accuracy(self) -> float | None:
        """The smallest accuracy significantly above `majority`; None if there is none, and then no
        trial is said to guess."""
        if not self.samples:
            return None
        if self.grouped:
            return self.least_of_groups
        return above_majority(self.majority, self.samples)

    @property
    def no_test(self) -> str:
        """A sentence where no accuracy could show that a trial does not guess; else empty."""
        if not self.samples or self.least_accuracy is not None:
            return ""
        return no_test(self.majority)

    def guesses(self, record: TrialRecord) -> bool:
        """Whether it is not significantly more accurate than the most frequent class."""
        if self.least_accuracy is None:
            return False
        # Half a sample: an accuracy is a mean of float32 values.
        return record.metrics.get("accuracy", math.inf) < self.least_accuracy - 0.5 / self.samples

    def best(
        self, records: Sequence[TrialRecord], before: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """The best value of each objective in complete trials that do not guess, and `before`."""
        found = dict(before or {})
        for record in complete(records):
            if not self.guesses(record):
                for objective in self.objectives:
                    better = max if objective.direction == "maximize" else min
                    value = record.metrics[objective.metric]
                    found[objective.metric] = better(value, found.get(objective.metric, value))
        return found

    def excluded(
        self, records: Sequence[TrialRecord], best: Mapping[str, float] | None = None
    ) -> Reasons:
        """Why complete trials do not count.

        best: of the whole study, where `records` is only a part of it, which must hold the front.
        """
        found = self.violating(records, best)
        if self.guard is not None:
            others = [one for one in complete(records) if one.name not in found]
            found |= self.guard.excluded(others)
        return found

    def violating(
        self, records: Sequence[TrialRecord], best: Mapping[str, float] | None = None
    ) -> Reasons:
        """Why complete trials do not count, whatever the others are: they guess, or violate a
        constraint. best: as above."""
        if best is None:
            best = self.best(records)
        reasons = {record.name: self._reason(record, best) for record in complete(records)}
        return {name: reason for name, reason in reasons.items() if reason}

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
                reason = f"{condition.metric} {value}, but the study wants {condition}"
                if condition.relative:
                    reason += f" ({condition.comparison} {condition.limit(best):.4f})"
                return reason
        return ""

    def violations(
        self, values: Mapping[str, float], best: Mapping[str, float]
    ) -> dict[str, float]:
        """The amount by which each rule is violated: above 0 if it is; 1 if not measured."""
        found = {}
        if self.least_accuracy is not None:
            least = self.least_accuracy - 0.5 / self.samples
            found["guesses"] = least - values.get("accuracy", math.inf)
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
        aside = self.excluded(records, best)
        return [record for record in complete(records) if record.name not in aside]


def rules_of(study: StudyFolder) -> Rules:
    """The rules of a study: its own, whatever objectives are given afterwards."""
    recorded = study.recorded
    if not recorded.sizes:  # it was not run yet
        return Rules(study.own_objectives, study.constraints)
    return Rules(
        study.own_objectives,
        study.constraints,
        recorded.majority or 0.0,
        recorded.measured("validation"),
        recorded.groups is not None,
        recorded.least_accuracy,
        guard_of(study),
    )


@dataclass(frozen=True)
class Ranking:
    """The trials of a study, ranked. `records` must be all of them: `best` is the whole study's."""

    study: StudyFolder
    records: Trials

    @cached_property
    def rules(self) -> Rules:
        return rules_of(self.study)

    @cached_property
    def by_rule(self) -> Reasons:
        """Why trials are excluded by the study's rules."""
        return self.rules.excluded(self.records)

    @cached_property
    def excluded(self) -> Reasons:
        """Why complete trials do not count: by rule, or left out of objectives given afterwards."""
        return {**self.by_rule, **self.refused}

    @cached_property
    def refused(self) -> Reasons:
        """Why trials are not confirmed even by name: `excluded`, without what is only far worse
        than the best."""
        return {**self._left_out, **self.rules.violating(self.records)}

    @property
    def _left_out(self) -> Reasons:
        if self.study.given is None:
            return {}
        return {name: f"{LEFT_OUT}: {why}" for name, why in self.study.given.left_out.items()}

    @cached_property
    def counted(self) -> list[TrialRecord]:
        """The complete trials that count, each by itself."""
        return [record for record in self.records.complete if record.name not in self.excluded]

    @cached_property
    def eligible(self) -> list[TrialRecord]:
        """The models that count: of trials with equal predictions the one that stands for them."""
        return [record for record in self.counted if record.name not in self.stands_for]

    @cached_property
    def equals(self) -> dict[str, tuple[str, ...]]:
        """The trials that another with equal predictions stands for, by its name: `equal_models`.

        That is one that counts, then one whose predictions are there, then a default, then the
        first: what it cost is no part of a model.
        """
        found = {}
        for several in equal_models(self.study, self.records):
            first, *others = sorted(several, key=self._last_to_stand)
            found[first.name] = tuple(each.name for each in others)
        return found

    @cached_property
    def stands_for(self) -> dict[str, str]:
        """The trial that stands for another with equal predictions, by the other's name."""
        return {each: name for name, others in self.equals.items() for each in others}

    def _last_to_stand(self, record: TrialRecord) -> tuple[bool, bool, bool]:
        is_default = record in self._defaults_of(record.label)
        has_file = (self.study.files(record) / PREDICTIONS).is_file()
        return record.name in self.excluded, not has_file, not is_default

    @cached_property
    def front(self) -> list[TrialRecord]:
        """The Pareto front of the study's objectives."""
        return front(self.eligible, self.study.objectives)

    @cached_property
    def deployed(self) -> StudyFolder:
        """The study with the form of its models decided, where it serves EITHER: that in which its
        confirmation measures them on test; before, the one with the better trial."""
        study = self.study
        if study.serve != EITHER:
            return study
        confirming = confirming_study(study)
        if confirming is not None and not study.confirms_itself:
            return replace(study, form=confirming.serves)
        began = [one for one in self.eligible if not added_later(study, one)]
        return replace(study, form=better_form(study, began))

    @cached_property
    def knee(self) -> TrialRecord | None:
        """The best compromise of the objectives as the registered model has them."""
        return self.knee_among(self.eligible)

    def knee_among(self, records: Sequence[TrialRecord]) -> TrialRecord | None:
        objectives = self.deployed.served
        return knee(front(measured_in(records, objectives), objectives), objectives)

    @cached_property
    def reference(self) -> Costs:
        """The hypervolume's reference point: the worst values of the defaults that count.

        Fixed once all defaults are done, and judged among themselves, so that later trials do not
        move it. Until then, or if none counts, the metrics' own worst values.
        """
        objectives = self.study.objectives
        if not self.defaults_that_count:
            return worst_point(objectives, len(self.study.recorded.classes))
        points = [trial_costs(record, objectives) for record in self.defaults_that_count]
        return tuple(max(column) for column in zip(*points, strict=True))

    @cached_property
    def defaults_that_count(self) -> list[TrialRecord]:
        """The defaults that neither guess nor violate a constraint, judged among themselves; none
        until all ended."""
        defaults = self.defaults or []
        violating = self.rules.violating(defaults)
        kept = [one for one in complete(defaults) if one.name not in violating]
        return measured_in(kept, self.study.objectives)

    @cached_property
    def defaults(self) -> list[TrialRecord] | None:
        """The trials of the settings tried first, else a method's first; None until all ended."""
        found = []
        for label in self.study.labels:
            for one in self._defaults_of(label):
                if one is None or one.state == "running":
                    return None
                found.append(one)
        return found

    def default_of(self, label: str) -> TrialRecord | None:
        """The trial of a method's first default, else its first; None if there is none."""
        return next(iter(self._defaults_of(label)), None)

    def _defaults_of(self, label: str) -> list[TrialRecord | None]:
        """The trials of a method's defaults that fit into its planned ones; None for one that was
        not asked.

        They are known by their settings where the study tries others before them; else they are a
        method's first trials.
        """
        space = self.study.recorded_spaces.get(label)
        planned = self.study.planned
        if space is None or not space.own or not space.published:
            count = 1 if space is None else max(1, len(space.defaults))
            return [self.records.numbered(label, number) for number in range(min(count, planned))]
        order = [*space.own, *(one for one in space.published if one not in space.own)]
        found = []
        for setting in space.published:
            number = order.index(setting)
            if number < planned:
                asked = (one for one in self.records.of(label) if has(one, setting))
                found.append(next(asked, None))
        return found

    @cached_property
    def hypervolume(self) -> float:
        return hypervolume(self.front, self.study.objectives, self.reference)

    def reference_values(self) -> dict[str, float]:
        """The reference point in the metrics' own units."""
        pairs = zip(self.study.objectives, self.reference, strict=True)
        return {one.metric: one.sign * cost for one, cost in pairs}


def has(record: TrialRecord, setting: Mapping[str, object]) -> bool:
    """Whether the trial has these values."""
    return all(record.params.get(path) == value for path, value in setting.items())


def served_with_nll(study: StudyFolder) -> tuple[Objective, ...]:
    """The objectives as deployed, and NLL, by which ties between trials are broken."""
    nll = Objective(as_served("nll", study.serves), "minimize")
    return tuple({one.metric: one for one in (*study.served, nll)}.values())


def on_a_front(study: StudyFolder, eligible: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials whose models `keep_models: front` and `slim` keep: what a choice may take.

    On the front of the objectives; for the knee, of those as deployed; or of these and NLL,
    which breaks ties. Of a study that serves EITHER, in both forms.
    """
    forms = FORMS if study.serve == EITHER else (study.form,)
    found: dict[str, TrialRecord] = {}
    for each in (replace(study, form=form) for form in forms):
        for objectives in (study.objectives, each.served, served_with_nll(each)):
            measured = measured_in(eligible, objectives)
            found |= {record.name: record for record in front(measured, objectives)}
    return list(found.values())


def excluded_line(reasons: Reasons) -> str:
    """`7 trials are excluded: 2 guess, 5 violate a constraint, 1 is far worse than the best.`;
    empty for none.

    Then those left out, by reason.
    """
    left: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason.startswith(LEFT_OUT):
            left.setdefault(reason.removeprefix(f"{LEFT_OUT}: "), []).append(name)
    by_rule = [reason for reason in reasons.values() if not reason.startswith(LEFT_OUT)]
    said = [_by_rule_line(by_rule)] if by_rule else []
    said += [f"{some(names)} {are(names)} {LEFT_OUT}: {why}." for why, names in left.items()]
    return " ".join(said)


def _by_rule_line(reasons: Sequence[str]) -> str:
    guessing = sum(reason.startswith("guesses") for reason in reasons)
    far = sum(reason.startswith(FAR_WORSE) for reason in reasons)
    violating = len(reasons) - guessing - far
    parts = []
    if guessing:
        parts.append(f"{guessing} guess{'es' * (guessing == 1)}")
    if violating:
        parts.append(f"{violating} violate{'s' * (violating == 1)} a constraint")
    if far:
        parts.append(f"{far} {'is' if far == 1 else 'are'} {FAR_WORSE}")
    trials = f"{len(reasons)} trials are" if len(reasons) > 1 else "1 trial is"
    return f"{trials} excluded: {', '.join(parts)}."
