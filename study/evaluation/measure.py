"""The numbers of an evaluation: metrics, their intervals, and what a temperature would change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from study.evaluation.user_predictions import UserPredictions
from study.evaluation.weighted import check_weighted, weighted_intervals, weighted_values
from study.uncertainty.bootstrap import intervals_of, measured
from study.uncertainty.forms import difference_text, value_text
from study.uncertainty.intervals import LEVEL, Interval
from study.uncertainty.resampling import Draws, too_few
from trainables import metrics
from trainables.machine import one_torch_thread

BINS = 15
SMALL = 2**22  # scores, below which more threads of torch cost more than they save
RESAMPLES = 1000
DRAWN = 20_000_000  # samples in all resamples; of many samples there are fewer resamples
TAILS = 10  # resamples, or more, are needed over the share of them beyond the ends
TS = metrics.AFTER_TEMPERATURE
Say = Callable[[str], object]  # is told what is computed now


@dataclass(frozen=True)
class Advice:
    """Whether to use a temperature: by how much it lowers a proper score, cross-fitted.

    temperature: fitted on all samples. removed: of `score`, with an interval where there is one.
    ece: before and after.
    """

    temperature: float
    score: str  # nll; brier, where NLL is infinite
    removed: Interval | float
    ece: tuple[Interval | float, Interval | float]
    of: str  # what is divided by it

    @property
    def helps(self) -> bool | None:
        """Whether it measurably does; None: there are no intervals, so nobody knows."""
        return self.removed.low > 0 if isinstance(self.removed, Interval) else None

    @property
    def sentence(self) -> str:
        name = {"nll": "NLL", "brier": "the Brier score"}[self.score]
        if isinstance(self.removed, float):
            return (
                f"A temperature of {self.temperature:.3g} changes {name} by {-self.removed:+.4f}"
                " (cross-fitted); without intervals it is not known whether that is noise."
            )
        less, low, high = self.removed
        if not self.helps:
            by = difference_text(Interval(-less, -high, -low))
            return f"A temperature makes no measurable difference: it changes {name} by {by}."
        before, after = map(value_text, self.ece)
        return (
            f"Divide the {self.of} by {self.temperature:.3g}: ECE {before} -> {after}, and"
            f" {name} falls by {value_text(self.removed)} (cross-fitted)."
        )

    def to_plain(self) -> dict[str, object]:
        removed = self.removed
        ends = {"low": removed.low, "high": removed.high} if isinstance(removed, Interval) else {}
        value = removed.estimate if isinstance(removed, Interval) else removed
        return {
            "temperature": self.temperature,
            "helps": self.helps,
            "removed": {"metric": self.score, "value": value, **ends},
        }


@dataclass(frozen=True)
class Numbers:
    """values: the defined metrics, before and (`ts_`) after temperature scaling; intervals of those
    that have one, from so many resamples; why_none: why nothing has one."""

    values: dict[str, float]
    intervals: dict[str, Interval] = field(default_factory=dict)
    resamples: int = 0
    why_none: str = ""
    advice: Advice | None = None


def resamples_for(samples: int, level: float = LEVEL) -> int:
    """How many resamples: 1,000; of more than 20,000 samples as many as draw 20 million of them,
    and never too few for the level."""
    needed = math.ceil(round(TAILS / (1 - level), 6))
    return max(min(RESAMPLES, DRAWN // samples), needed)


def measure(
    given: UserPredictions,
    names: Sequence[str],
    level: float | None = LEVEL,
    bins: int = BINS,
    say: Say = lambda doing: None,
) -> Numbers:
    """The metrics of these names, without `ts_`. level: of the intervals; None: there are none.

    Raises FieldError for a metric that weights have no form of.
    """
    predictions = given.predictions
    resamples = 0
    why_none = too_few(predictions)
    if level is not None and not why_none:
        resamples = resamples_for(len(predictions.labels), level)
    small = predictions.logits.numel() < SMALL
    with one_torch_thread() if small else nullcontext():
        if given.weights is not None:
            return _weighted(given, given.weights, names, level or LEVEL, resamples, why_none)
        return _unweighted(given, names, level or LEVEL, bins, resamples, why_none, say)


def _weighted(
    given: UserPredictions,
    weights: np.ndarray,
    names: Sequence[str],
    level: float,
    resamples: int,
    why_none: str,
) -> Numbers:
    check_weighted(names)
    predictions = given.predictions
    values = weighted_values(predictions, weights, names)
    if not resamples:
        return Numbers(values, why_none=why_none)
    draws = Draws.of(len(predictions.labels), resamples, 0, predictions.groups)
    found = weighted_intervals(predictions, weights, values, draws, level)
    return Numbers(values, found, resamples)


def _unweighted(
    given: UserPredictions,
    names: Sequence[str],
    level: float,
    bins: int,
    resamples: int,
    why_none: str,
    say: Say,
) -> Numbers:
    predictions = given.predictions
    say("temperature scaling")
    after = predictions.cross_fitted()
    score = "brier" if len(predictions.impossible()) else "nll"
    deciding = [score, "ece"]
    found: dict[str, float] = {}
    scores = {
        "": (predictions.logits, predictions.probs),
        TS: (after, predictions.probs_after(after)),
    }
    every = list(dict.fromkeys([*names, *deciding]))
    for prefix, (logits, probs) in scores.items():
        for number, name in enumerate(every, start=1):
            if prefix and metrics.describe(name).removed_of:
                continue
            say(f"{prefix}{name} ({number} of {len(every)})")
            own = metrics.measure(logits, predictions.labels, [name], bins, after, probs=probs)
            found |= {prefix + name: value for name, value in own.items()}
    intervals: dict[str, Interval] = {}
    removed = f"calibration_{score}"
    if resamples:
        say(f"intervals, from {resamples:,} resamples")
        draws = Draws.of(len(predictions.labels), resamples, 0, predictions.groups)
        wanted = [*every, *(TS + name for name in every), removed]
        with np.errstate(invalid="ignore"):  # an infinite NLL has no interval
            parts = measured(predictions, draws, wanted, after=after.double().numpy())
            intervals = intervals_of(parts, wanted, level)
        intervals = {name: one for name, one in intervals.items() if _is_finite(one)}
    advice = Advice(
        predictions.temperature(),
        score,
        intervals.get(removed, found[score] - found[TS + score]),
        (intervals.get("ece", found["ece"]), intervals.get(TS + "ece", found[TS + "ece"])),
        given.divided,
    )
    asked = {*names, *(TS + name for name in names)}
    return Numbers(
        {name: value for name, value in found.items() if name in asked},
        {name: one for name, one in intervals.items() if name in asked},
        resamples,
        why_none,
        advice,
    )


def _is_finite(one: Interval) -> bool:
    return math.isfinite(one.low) and math.isfinite(one.high)
