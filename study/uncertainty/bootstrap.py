"""Uncertainty of a study's metrics: one paired bootstrap of the stored predictions for all trials and metrics.

Each resample is drawn once and shared by all trials and metrics: hard samples are hard for all, so differences between
trials are less uncertain than the trials themselves. What the intervals mean: docs/uncertainty.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from study.analysis.pareto import complete, front
from study.schema.objective import Objective, plain_name
from study.store.files import stored_predictions
from study.store.study import Study
from study.store.trials import TrialRecord
from study.uncertainty.consistency import calibrated_sums
from study.uncertainty.intervals import (
    LEVEL,
    Interval,
    Resampled,
    intervals,
    of_difference,
    percent,
    unseen,
)
from study.uncertainty.resampling import RESAMPLED, Draws, Floats, Sums, Table, mass_starts
from study.uncertainty.temperature import sums_after
from trainables.fields import FieldError
from trainables.metrics import AFTER_TEMPERATURE, describe
from trainables.outputs.predictions import Predictions
from trainables.post_hoc import cross_fitted
from trainables.threads import in_threads

RESAMPLES = 1000
FEWEST_SAMPLES = 10

Result = TypeVar("Result")


@dataclass(frozen=True)
class Analysis:
    """The bootstrap of the validation split, by trial name."""

    resamples: int
    level: float  # of the intervals
    intervals: dict[
        str, dict[str, Interval]
    ]  # by metric; metrics that are not resampled are absent
    shares: dict[
        str, float
    ]  # fraction of resamples with the trial on the front; empty if an objective is absent

    @property
    def named(self) -> str:
        """What captions call the intervals: `95% intervals`."""
        return f"{percent(self.level)} intervals"


class Difference(NamedTuple):
    """The metrics of two trials on the same samples, and their difference (one - other) with its interval."""

    one: float
    other: float
    estimate: float
    low: float
    high: float


def resampled_names() -> list[str]:
    return [*RESAMPLED, *(AFTER_TEMPERATURE + name for name in RESAMPLED)]


def analyse(
    study: Study,
    records: Sequence[TrialRecord],
    resamples: int = RESAMPLES,
    seed: int = 0,
    wanted: Collection[str] | None = None,
    off_front: Collection[str] | None = None,
    level: float = LEVEL,
    aside: Collection[str] = (),
) -> Analysis:
    """Intervals of the complete trials among `records`, and their shares on the front of the study's objectives.

    wanted: metrics (default: all resampled); off_front: metrics for trials not on the front (default: `wanted`);
    aside: the trials that are set aside, which have no share.
    Raises FieldError if stored predictions are missing or altered.
    """
    wanted = set(resampled_names() if wanted is None else wanted)
    rest = wanted if off_front is None else set(off_front)
    objectives = [objective.metric for objective in study.objectives]
    finished = complete(records)
    on_front = {
        record.name
        for record in front((one for one in finished if one.name not in aside), study.objectives)
    }

    def measure(
        record: TrialRecord, predictions: Predictions, draws: Draws
    ) -> tuple[dict[str, Interval], dict[str, Floats]]:
        own = wanted if record.name in on_front else rest
        parts = measured(predictions, draws, own | set(objectives))
        found = {
            prefix + name: one
            for prefix, part in parts.items()
            for name, one in intervals(part, level, _plain(own, prefix)).items()
        }
        return found, _values(parts, objectives)

    names = [record.name for record in finished]
    found = _of_each(study, finished, resamples, seed, measure, on_front)
    counted = {
        name: values for name, (_, values) in zip(names, found, strict=True) if name not in aside
    }
    shares = front_shares(counted, study.objectives)
    return Analysis(
        resamples, level, {name: sure for name, (sure, _) in zip(names, found, strict=True)}, shares
    )


def analyse_front(
    study: Study,
    records: Mapping[str, Sequence[TrialRecord]],
    resamples: int,
    level: float = LEVEL,
    aside: Collection[str] = (),
) -> Analysis:
    """Shares and objective intervals of all complete trials; intervals of every metric for those on the front."""
    trials = [record for found in records.values() for record in found]
    objectives = [objective.metric for objective in study.objectives]
    return analyse(study, trials, resamples, off_front=objectives, level=level, aside=aside)


def compare(
    study: Study,
    one: TrialRecord,
    other: TrialRecord,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> dict[str, Difference]:
    """Each metric of `one` minus that of `other`, with intervals on shared resamples. Raises as `analyse`."""
    names = resampled_names()

    def measure(
        record: TrialRecord, predictions: Predictions, draws: Draws
    ) -> tuple[dict[str, float], dict[str, Floats], Resampled]:
        parts = measured(predictions, draws, names)
        estimates = {
            prefix + name: value
            for prefix, p in parts.items()
            for name, value in p.estimates().items()
        }
        return estimates, _values(parts, names), parts[""]

    (first, of_first, raw), (second, of_second, other_raw) = _of_each(
        study, [one, other], resamples, seed, measure
    )
    found = {}
    for name in (name for name in names if name in of_first and name in of_second):
        estimate, moved = first[name] - second[name], of_first[name] - of_second[name]
        low, high = of_difference(plain_name(name), estimate, moved, level)
        more, less = (unseen(one.sample, plain_name(name), level) for one in (raw, other_raw))
        low, high = low - less, high + more
        if math.isfinite(low) and math.isfinite(high):
            most = describe(name).largest or math.inf
            found[name] = Difference(
                first[name], second[name], estimate, max(low, -most), min(high, most)
            )
    return found


def differences_from(
    study: Study,
    best: TrialRecord,
    records: Sequence[TrialRecord],
    metric: str,
    resamples: int = RESAMPLES,
) -> dict[str, tuple[float, float]]:
    """95% intervals of each trial's metric minus that of `best`, computed as in `compare`."""
    name = plain_name(metric)

    def measure(
        record: TrialRecord, predictions: Predictions, draws: Draws
    ) -> tuple[float, Floats, float]:
        parts = measured(predictions, draws, [metric])
        (found,) = parts.values()
        return found.estimates()[name], _values(parts, [metric])[metric], unseen(found.sample, name)

    trials = [best, *records]
    found = _of_each(study, trials, resamples, 0, measure)
    first, of_first, of_best = found[0]
    differences = {}
    for record, (estimate, values, of_trial) in zip(trials, found, strict=True):
        low, high = of_difference(name, estimate - first, values - of_first)
        differences[record.name] = low - of_best, high + of_trial
    return differences


# ---- one trial -----------------------------------------------------------------------------------------------------


def measured(
    predictions: Predictions, draws: Draws, wanted: Collection[str]
) -> dict[str, Resampled]:
    """The wanted metrics of the predictions as they are (key "") and after temperature scaling (key "ts_")."""
    parts = {}
    for prefix in ("", AFTER_TEMPERATURE):
        if names := _plain(set(wanted) & set(resampled_names()), prefix):
            table, resamples = resampled(
                predictions, draws.counts, prefix, "classwise_ece" in names
            )
            parts[prefix] = Resampled(
                table.total(), resamples, calibrated_sums(table, draws.uniforms)
            )
    return parts


def resampled(
    predictions: Predictions,
    counts: Floats,
    prefix: str,
    classwise: bool,
    temperature: float | None = None,
) -> tuple[Table, Sums]:
    """The samples' table and the sums of each resample, before ("") or after ("ts_") temperature scaling.

    counts: [N, B]. temperature: fitted on other samples; None: cross-fitted on these, inside each resample.
    """
    logits, labels = predictions.logits.double().numpy(), predictions.labels.numpy()
    if prefix and temperature is None:
        table = Table.of(
            cross_fitted(predictions.logits, predictions.labels).numpy(), labels, classwise
        )
        return table, sums_after(logits, labels, counts, mass_starts(table.confidence), classwise)
    table = Table.of(
        logits / (temperature if prefix and temperature is not None else 1.0), labels, classwise
    )
    return table, table.sums(counts)


def _values(parts: dict[str, Resampled], names: Collection[str]) -> dict[str, Floats]:
    """The resampled values of these metrics, [B] each."""
    every = {
        prefix + name: one
        for prefix, part in parts.items()
        for name, one in part.resamples.metrics(_plain(names, prefix)).items()
    }
    return {name: every[name] for name in names if name in every}


def _plain(names: Collection[str], prefix: str) -> set[str]:
    """The names before, or after, temperature scaling, without the prefix."""
    return {
        plain_name(name) for name in names if name.startswith(AFTER_TEMPERATURE) == bool(prefix)
    }


def _of_each(
    study: Study,
    records: Sequence[TrialRecord],
    resamples: int,
    seed: int,
    measure_one: Callable[[TrialRecord, Predictions, Draws], Result],
    keep: Collection[str] = (),
) -> list[Result]:
    """`measure_one` for each trial, with its predictions on the shared samples and draws.

    keep: trials whose predictions stay cached in the study.
    """
    if not records:
        return []
    labels = stored_predictions(study, records[0], keep=True).labels.numpy()
    if len(labels) < FEWEST_SAMPLES:
        raise FieldError("bootstrap", f"{len(labels)} validation samples are too few to resample.")
    draws = Draws.of(len(labels), resamples, seed)

    def measure(record: TrialRecord) -> Result:
        predictions = stored_predictions(study, record, record.name in keep)
        if not np.array_equal(predictions.labels.numpy(), labels):
            problem = f"its validation labels differ from those of {records[0].name}; they cannot be compared."
            raise FieldError(record.name, problem)
        return measure_one(record, predictions, draws)

    return in_threads(measure, records)


# ---- the front of each resample ------------------------------------------------------------------------------------


def front_shares(
    values: dict[str, dict[str, Floats]], objectives: Sequence[Objective]
) -> dict[str, float]:
    """The fraction of resamples with each trial on the front. values: by trial and metric, [B].

    Not the probability that it truly is: a resample carries the luck of this validation split plus its own.
    """
    if not all(
        objective.metric in of_trial for of_trial in values.values() for objective in objectives
    ):
        return {}
    costs = np.array(
        [[one.sign * of_trial[one.metric] for one in objectives] for of_trial in values.values()]
    )
    if not len(costs):
        return {}
    found = _on_front_of_two if len(objectives) <= 2 else _on_front
    return dict(zip(values, found(costs).mean(axis=0).tolist(), strict=True))


def _on_front_of_two(costs: Floats) -> np.ndarray:
    """The trials on the front, [B, trials], for one or two objectives. costs: [trials, objectives, B], to minimize."""
    first, second = costs[:, 0].T, costs[:, -1].T
    order = np.lexsort((second, first), axis=-1)
    first, second = (np.take_along_axis(each, order, 1) for each in (first, second))
    # In this order an earlier trial as good in the second objective dominates a later one, unless the two are equal.
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
    """The same for any number of objectives, comparing all pairs in each resample."""
    found = np.empty((costs.shape[2], len(costs)), bool)
    for resample, points in enumerate(np.moveaxis(costs, 2, 0)):
        no_worse = (points[:, None] <= points).all(axis=2)
        found[resample] = ~(no_worse & ~no_worse.T).any(axis=0)
    return found
