"""Uncertainty of a study's metrics: one paired bootstrap of the predictions of all trials.

Each resample is drawn once and shared by all trials and metrics: hard samples are hard for all, so
differences between trials are less uncertain than the trials themselves. What the intervals mean:
docs/why/how-certain.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from study.analysis.pareto import complete, front
from study.schema.objective import Objective, plain_name
from study.store.files import stored_predictions
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from study.uncertainty.consistency import calibrated_sums
from study.uncertainty.intervals import (
    LEVEL,
    Interval,
    intervals,
    percent,
    percentile,
    unseen,
    widened,
)
from study.uncertainty.resampling import (
    CALIBRATION,
    OVERLAPS,
    REMOVED,
    RESAMPLED,
    WITHOUT_GROUPS,
    Draws,
    Floats,
    SampleTerms,
    Sums,
    differs,
    draws_for,
    mass_starts,
    too_few,
)
from study.uncertainty.side import Side, hits_of
from study.uncertainty.smoothing import Smoothing
from study.uncertainty.temperature import cross_fitted, sums_after
from study.uncertainty.worlds import Resampled, Worlds
from trainables.machine import in_threads
from trainables.metrics import AFTER_TEMPERATURE, WITH_MASKS, stored
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

RESAMPLES = 1000

Result = TypeVar("Result")
Removed = TypeVar("Removed", float, Floats)


@dataclass(frozen=True)
class Analysis:
    """The bootstrap of the validation split, by trial name."""

    resamples: int
    level: float  # of the intervals
    # By metric; metrics that are not resampled are absent.
    intervals: dict[str, dict[str, Interval]]
    # Fraction of resamples with the trial on the front; empty if an objective is absent.
    shares: dict[str, float]
    unit: str | None = None  # what is resampled where samples belong together: `214 patients`

    @property
    def named(self) -> str:
        """The caption's name of the intervals: `95% intervals`, and what they resample."""
        resampling = "" if self.unit is None else f" that resample {self.unit}"
        return f"{percent(self.level)} intervals{resampling}"


class Difference(NamedTuple):
    """The metrics of two trials on the same samples; one - other, with its interval."""

    one: float
    other: float
    estimate: float
    low: float
    high: float


def resampled_names(study: StudyFolder | None = None) -> list[str]:
    """The metrics that are resampled, in a study whose samples may belong to groups."""
    names = [name for name in RESAMPLED if name not in WITHOUT_GROUPS or not _has_groups(study)]
    return [*names, *REMOVED, *(AFTER_TEMPERATURE + name for name in names)]


def _has_groups(study: StudyFolder | None) -> bool:
    """Whether samples of a split belong together, as the rows of an image with a mask do."""
    if study is None or study.recorded.groups is None:
        return False
    if study.recorded.marked:
        return True
    return any(study.recorded.unit_in(split) for split in study.recorded.groups)


def recorded_names(study: StudyFolder) -> list[str]:
    """The resampled metrics that every trial has: the stored ones and the objectives."""
    more = [one.metric for one in study.objectives]
    if study.recorded.marked:
        more += WITH_MASKS
    return [name for name in resampled_names() if plain_name(name) in stored() or name in more]


def analyse(
    study: StudyFolder,
    records: Sequence[TrialRecord],
    resamples: int = RESAMPLES,
    wanted: Collection[str] | None = None,
    off_front: Collection[str] | None = None,
    level: float = LEVEL,
    aside: Collection[str] = (),
) -> Analysis:
    """Intervals of the complete trials among `records`, and their shares on the study's front.

    wanted: metrics (default: all resampled that trials have); off_front: metrics for trials not on
    the front (default: `wanted`); aside: the trials that are excluded, which have no share. Raises
    FieldError if stored predictions are missing or altered.
    """
    objectives = [one.metric for one in study.objectives]
    wanted = set(recorded_names(study) if wanted is None else wanted)
    rest = wanted if off_front is None else set(off_front)
    finished = complete(records)
    counted = [record for record in finished if record.name not in aside]
    on_front = {record.name for record in front(counted, study.objectives)}

    def measure(
        record: TrialRecord, predictions: Predictions, draws: Draws
    ) -> tuple[dict[str, Interval], dict[str, Floats]]:
        own = wanted if record.name in on_front else rest
        parts = measured(predictions, draws, own | set(objectives))
        return intervals_of(parts, own, level), values_of(parts, objectives)

    by_trial = {}
    values = {}
    found = _of_each(study, finished, resamples, measure, on_front)
    for record, (own, of_trial) in zip(finished, found, strict=True):
        by_trial[record.name] = own
        if record.name not in aside:
            values[record.name] = of_trial
    recorded = study.recorded
    unit = None if recorded.groups is None else recorded.resampled("validation")
    shares = front_shares(values, study.objectives)
    return Analysis(resamples, level, by_trial, shares, unit)


def analyse_front(
    study: StudyFolder,
    records: Sequence[TrialRecord],
    resamples: int,
    level: float = LEVEL,
    aside: Collection[str] = (),
) -> Analysis:
    """Objective intervals and shares of all complete trials; every metric's on the front."""
    objectives = [one.metric for one in study.objectives]
    return analyse(study, records, resamples, off_front=objectives, level=level, aside=aside)


def compare(
    study: StudyFolder,
    one: TrialRecord,
    other: TrialRecord,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    beside: StudyFolder | None = None,
) -> dict[str, Difference]:
    """Each metric of `one` minus that of `other`, with its interval. Raises as `analyse`.

    beside: the study of `other`, if that is another, on the same validation samples.
    """
    names = recorded_names(study)
    side = partial(_side, names)
    first, second = _of_each(study, [one, other], resamples, side, beside=beside)
    found = {}
    for name in names:
        if name not in first.values or name not in second.values:
            continue
        estimate, low, high = first.less(second, name, level)
        if math.isfinite(low) and math.isfinite(high):
            values = (first.estimates[name], second.estimates[name])
            found[name] = Difference(*values, estimate, low, high)
    return found


def differences_from(
    study: StudyFolder,
    best: TrialRecord,
    records: Sequence[TrialRecord],
    metric: str,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Interval]:
    """Each trial's metric minus that of `best`, with an interval, computed as in `compare`."""
    trials = [best, *records]
    found = _of_each(study, trials, resamples, partial(_side, [metric]))
    if any(metric not in one.values for one in found):
        raise FieldError("bootstrap", f"{metric} has no interval on these samples")
    return {
        record.name: one.less(found[0], metric, level)
        for record, one in zip(trials, found, strict=True)
    }


def _side(
    names: Collection[str], record: TrialRecord, predictions: Predictions, draws: Draws
) -> Side:
    return side_of(names, predictions, draws)


def side_of(names: Collection[str], predictions: Predictions, draws: Draws) -> Side:
    """One side of a comparison of two sets of predictions on the same samples."""
    parts = measured(predictions, draws, names)
    sample = next(iter(parts.values())).sample  # its hits survive a temperature
    hits = hits_of(predictions, draws.groups)
    values = values_of(parts, names)
    return Side(estimates_of(parts), values, sample, hits, worlds_of(parts, values))


# ---- one trial -----------------------------------------------------------------------------------


def measured(
    predictions: Predictions,
    draws: Draws,
    wanted: Collection[str],
    temperature: float | None = None,
    after: Floats | None = None,
) -> dict[str, Resampled]:
    """The wanted metrics as they are (key "") and after temperature scaling (key "ts_").

    temperature: fitted on other samples; None: cross-fitted on these, inside each resample. after:
    the cross-fitted logits, where they are known.
    """
    parts = {}
    for prefix, names in by_prefix(with_parts(set(wanted) & set(resampled_names()))).items():
        table, resamples = resampled(predictions, draws, prefix, names, temperature, after)
        draw = partial(calibrated_sums, table, draws.chances)
        parts[prefix] = Resampled(table.total(), resamples, draw)
    return parts


def with_parts(names: Collection[str]) -> set[str]:
    """The names; for what a temperature removes of a score, also the score before and after it."""
    scores = {score for name, score in REMOVED.items() if name in names}
    return {*names, *scores, *(AFTER_TEMPERATURE + score for score in scores)}


def resampled(
    predictions: Predictions,
    draws: Draws,
    prefix: str,
    wanted: Collection[str],
    temperature: float | None,
    after: Floats | None = None,
) -> tuple[SampleTerms, Sums]:
    """The samples' table and the sums of each resample, before ("") or after ("ts_") scaling.

    wanted: names without prefix. temperature, after: as in `measured`.
    """
    labels = predictions.arrays.labels
    classwise = "classwise_ece" in wanted
    overlaps = not OVERLAPS.keys().isdisjoint(wanted)
    scaled = after if prefix and after is not None else logits_of(predictions, prefix, temperature)
    table = SampleTerms.of(
        scaled,
        labels,
        classwise,
        groups=draws.groups,
        overlaps=overlaps,
        given=None if prefix else predictions.arrays.given,
        ties=bool(prefix) and predictions.arrays.given is not None,
    )
    del scaled, after  # of many classes they are large
    if "smooth_ece" in wanted:
        table = smoothed(table)
    if not prefix or temperature is not None:
        return table, table.sums(draws.weights)
    logits = predictions.arrays.logits.astype(np.float64)
    starts = mass_starts(table.confidence)
    sums = sums_after(logits, labels, draws, starts, classwise, table.smoothing, overlaps)
    return table, sums


def logits_of(predictions: Predictions, prefix: str, temperature: float | None = None) -> Floats:
    """The logits as they are (""), or after the temperature ("ts_"); None: cross-fitted."""
    if prefix and temperature is None:
        return cross_fitted(predictions.arrays)
    whole: Floats = predictions.arrays.logits.astype(np.float64)
    return whole / temperature if prefix and temperature is not None else whole


def smoothed(table: SampleTerms) -> SampleTerms:
    """The table with smooth ECE, at the bandwidth of its samples."""
    return replace(table, smoothing=Smoothing.of(table.confidence, table.hits))


def values_of(parts: dict[str, Resampled], names: Collection[str]) -> dict[str, Floats]:
    """The resampled values of these metrics, [B] each."""
    wanted = with_parts(names)
    every: dict[str, Floats] = {}
    for prefix, part in parts.items():
        every |= prefixed(prefix, part.resamples.metrics(plain_names(wanted, prefix)))
    every |= removed(every)
    return {name: every[name] for name in names if name in every}


def worlds_of(parts: dict[str, Resampled], names: Collection[str]) -> dict[str, Worlds]:
    """The worlds of those that are calibration errors."""
    found: dict[str, Worlds] = {}
    for prefix, part in parts.items():
        own = [name for name in CALIBRATION if name in plain_names(names, prefix)]
        found |= prefixed(prefix, {name: Worlds.of(name, part) for name in own})
    return found


def estimates_of(parts: dict[str, Resampled]) -> dict[str, float]:
    """The metrics of the samples themselves."""
    every: dict[str, float] = {}
    for prefix, part in parts.items():
        every |= prefixed(prefix, part.estimates())
    return every | removed(every)


def intervals_of(
    parts: dict[str, Resampled], wanted: Collection[str], level: float = LEVEL
) -> dict[str, Interval]:
    """The interval of each wanted metric that has one."""
    found: dict[str, Interval] = {}
    for prefix, part in parts.items():
        found |= prefixed(prefix, intervals(part, level, plain_names(wanted, prefix)))
    names = [name for name in REMOVED if name in wanted]
    names = [name for name in names if not math.isinf(unseen(parts[""].sample, name, level))]
    if names:
        wide = widened(level, parts[""].sample)
        estimates = estimates_of(parts)
        for name, values in values_of(parts, names).items():
            found[name] = Interval(estimates[name], *percentile(values, wide))
    return found


def prefixed(prefix: str, found: Mapping[str, Result]) -> dict[str, Result]:
    """Values by metric with the prefix before each name."""
    return {prefix + name: value for name, value in found.items()}


def removed(every: Mapping[str, Removed]) -> dict[str, Removed]:
    """The part of each score that a temperature removes, where both values are there."""
    return {
        name: every[score] - every[AFTER_TEMPERATURE + score]
        for name, score in REMOVED.items()
        if score in every and AFTER_TEMPERATURE + score in every
    }


def plain_names(names: Collection[str], prefix: str) -> set[str]:
    """The names before, or after, temperature scaling, without the prefix."""
    after = bool(prefix)
    return {plain_name(name) for name in names if name.startswith(AFTER_TEMPERATURE) == after}


def by_prefix(names: Collection[str]) -> dict[str, set[str]]:
    """The `plain_names` before (key "") and after ("ts_"), where there are any."""
    found = {prefix: plain_names(names, prefix) for prefix in ("", AFTER_TEMPERATURE)}
    return {prefix: own for prefix, own in found.items() if own}


def _of_each(
    study: StudyFolder,
    records: Sequence[TrialRecord],
    resamples: int,
    measure_one: Callable[[TrialRecord, Predictions, Draws], Result],
    keep: Collection[str] = (),
    beside: StudyFolder | None = None,
) -> list[Result]:
    """`measure_one` for each trial, with its predictions on the shared samples and draws.

    keep: trials whose predictions stay cached in the study. beside: the study of the last one, if
    that is another.
    """
    if not records:
        return []
    first = stored_predictions(study, records[0], keep=True)
    if found := too_few(first, study.recorded.unit or "groups", "validation samples"):
        raise FieldError("bootstrap", found)
    draws = draws_for(first, resamples)

    def measure(record: TrialRecord) -> Result:
        owner = beside if beside is not None and record is records[-1] else study
        predictions = stored_predictions(owner, record, record.name in keep)
        if what := differs(predictions, first):
            raise FieldError(
                record.name,
                f"its validation {what} differ from those of {records[0].name}; they cannot be"
                f" compared",
            )
        return measure_one(record, predictions, draws)

    return in_threads(measure, records)


# ---- the front of each resample ------------------------------------------------------------------


def front_shares(
    values: dict[str, dict[str, Floats]], objectives: Sequence[Objective]
) -> dict[str, float]:
    """The fraction of resamples with each trial on the front. values: by trial and metric, [B].

    Not the probability that it truly is: a resample carries the luck of this validation split plus
    its own.
    """
    names = {one.metric for one in objectives}
    if not values or not all(names <= of_trial.keys() for of_trial in values.values()):
        return {}
    costs = np.array(
        [[one.sign * of_trial[one.metric] for one in objectives] for of_trial in values.values()]
    )
    found = _on_front_of_two if len(objectives) <= 2 else _on_front
    return dict(zip(values, found(costs).mean(axis=0).tolist(), strict=True))


def _on_front_of_two(costs: Floats) -> np.ndarray:
    """The trials on the front, [B, trials], for one or two objectives to minimize.

    costs: [trials, objectives, B].
    """
    first = costs[:, 0].T
    second = costs[:, -1].T
    order = np.lexsort((second, first), axis=-1)
    first = np.take_along_axis(first, order, 1)
    second = np.take_along_axis(second, order, 1)
    # In this order an earlier trial as good in the second objective dominates a later one, unless
    # the two are equal.
    best = np.minimum.accumulate(second, axis=1)
    kept = np.full_like(second, True, dtype=bool)
    kept[:, 1:] = second[:, 1:] < best[:, :-1]
    equal = np.zeros_like(kept)
    equal[:, 1:] = (first[:, 1:] == first[:, :-1]) & (second[:, 1:] == second[:, :-1])
    like = np.maximum.accumulate(np.where(equal, 0, np.arange(len(costs))), axis=1)
    found = np.empty_like(kept)
    np.put_along_axis(found, order, np.take_along_axis(kept, like, 1), 1)
    return found


def _on_front(costs: Floats) -> np.ndarray:
    """The trials on the front, for any number of objectives: all pairs in each resample."""
    found = np.empty((costs.shape[2], len(costs)), bool)
    for resample, points in enumerate(np.moveaxis(costs, 2, 0)):
        no_worse = (points[:, None] <= points).all(axis=2)
        found[resample] = ~(no_worse & ~no_worse.T).any(axis=0)
    return found
