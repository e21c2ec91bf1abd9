"""Progress over a study and over a trial's training: arrays for figures, from records and histories."""

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

    samples: training samples seen up to then. A failed trial, or one set aside, counts with the samples it reported.
    """

    trials: Values
    samples: Values
    volume: Values


def growth(ranking: Ranking, label: str | None = None) -> Growth:
    """The growth over all trials, or a method's, without those still running."""
    objectives, eligible = ranking.study.objectives, {record.name for record in ranking.eligible}
    records = [record for record in ranking.records if label is None or record.label == label]
    ended = [record for record in records if record.state != "running"]
    ended.sort(
        key=lambda record: (
            math.inf if record.ended is None else record.ended,
            record.label,
            record.number,
        )
    )
    front: list[TrialRecord] = []
    volume, volumes, samples = 0.0, [], []
    for record in ended:
        grown = pareto.front([*front, record], objectives) if record.name in eligible else front
        if any(member is record for member in grown):
            front, volume = grown, pareto.hypervolume(grown, objectives, ranking.reference)
        volumes.append(volume)
        samples.append(record.samples or 0)
    numbers = np.arange(1, len(ended) + 1, dtype=np.float64)
    return Growth(
        numbers, np.cumsum(samples, dtype=np.float64), np.array(volumes, dtype=np.float64)
    )


def by_epoch(history: History, name: str) -> tuple[Values, Values]:
    """Epochs and the value recorded as `name` after each, NaN if none: two [E] arrays."""
    epochs = [row["epoch"] for row in history]
    return np.array(epochs, np.float64), np.array(
        [row.get(name, math.nan) for row in history], np.float64
    )


def recorded(history: History, name: str) -> bool:
    return any(name in row for row in history)
