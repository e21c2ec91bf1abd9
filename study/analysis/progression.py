"""Progress over a study and over a trial's training: arrays for figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study.analysis import pareto
from study.analysis.ranking import Ranking
from study.store.trials import TrialRecord

Values = NDArray[np.float64]
History = Sequence[Mapping[str, float]]  # rows of a trial's history.json, one per epoch


@dataclass(frozen=True)
class Growth:
    """The front's hypervolume after each finished trial, in the order they finished: [T] arrays.

    samples: training samples seen up to then. A failed trial, or one excluded, counts with the
    samples it reported.
    """

    trials: Values
    samples: Values
    volume: Values


def growth(ranking: Ranking, label: str | None = None) -> Growth:
    """The growth over all trials, or a method's, without those still running."""
    objectives = ranking.study.objectives
    eligible = {record.name for record in ranking.counted}
    finished = ranking.records.finished
    ended = sorted(finished if label is None else finished.of(label), key=_when)
    front: list[TrialRecord] = []
    volume = 0.0
    volumes = []
    samples = []
    for record in ended:
        if record.name in eligible:
            grown = pareto.front([*front, record], objectives)
            if any(member is record for member in grown):
                front = grown
                volume = pareto.hypervolume(front, objectives, ranking.reference)
        volumes.append(volume)
        samples.append(record.samples or 0)
    numbers = np.arange(1, len(ended) + 1, dtype=np.float64)
    return Growth(numbers, np.cumsum(samples, dtype=np.float64), np.array(volumes, np.float64))


def _when(record: TrialRecord) -> tuple[float, str, int]:
    ended = math.inf if record.ended is None else record.ended
    return ended, record.label, record.number


def by_epoch(history: History, name: str) -> tuple[Values, Values]:
    """Epochs and the value recorded as `name` after each, NaN if none: two [E] arrays."""
    epochs = [row["epoch"] for row in history]
    values = [row.get(name, math.nan) for row in history]
    return np.array(epochs, np.float64), np.array(values, np.float64)


@dataclass(frozen=True)
class Course:
    """A value by epoch over repeats: its mean, lowest and highest. [E] arrays, NaN where none has
    it."""

    epochs: Values
    mean: Values
    low: Values
    high: Values


def course(histories: Sequence[History], name: str) -> Course:
    """What the histories, one a seed, recorded as `name`."""
    found: dict[float, list[float]] = {}
    for history in histories:
        for epoch, value in zip(*by_epoch(history, name), strict=True):
            found.setdefault(epoch, [])
            if not math.isnan(value):
                found[epoch].append(value)
    epochs = sorted(found)
    values = [found[epoch] or [math.nan] for epoch in epochs]
    return Course(
        np.array(epochs, np.float64),
        np.array([np.mean(each) for each in values], np.float64),
        np.array([min(each) for each in values], np.float64),
        np.array([max(each) for each in values], np.float64),
    )


def recorded(history: History, name: str) -> bool:
    return any(name in row for row in history)
