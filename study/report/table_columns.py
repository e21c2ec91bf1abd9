"""The columns of the papers' table: metrics with a heading, then other objectives and one's own.

Smaller is better in all.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from study.answer.phrases import first_upper
from study.schema.objective import Objective, plain_name
from study.store.study import StudyFolder
from study.uncertainty.resampling import RESAMPLED
from trainables.metrics import AFTER_TEMPERATURE, describe, ours
from trainables.metrics.shared.metric import Metric

METRICS = [name for name, metric in ours().items() if metric.heading]
# What some hundred samples can tell, with the objectives; a calibration error of a bin, or of a
# class, is known within several points.
SHOWN = ("error", "nll", "brier")


def names_shown(objectives: Iterable[Objective]) -> tuple[str, ...]:
    """The metrics of a table that names none, without `ts_`."""
    return (*SHOWN, *(plain_name(one.metric) for one in objectives))


def with_scaled(names: Iterable[str]) -> list[str]:
    """Each metric, before and after temperature scaling."""
    return list(chain(*((name, AFTER_TEMPERATURE + name) for name in names)))


COLUMNS = tuple(with_scaled(METRICS))


def further(names: Iterable[str]) -> list[str]:
    """Those of the metrics that have no heading, without `ts_`, each once; smaller is better."""
    plain = dict.fromkeys(plain_name(name) for name in names)
    return [name for name in plain if name not in METRICS and describe(name).better == "lower"]


def not_shown(objectives: Iterable[Objective]) -> list[str]:
    """The objectives that no column tells about: of the accuracy the error does."""
    plain = dict.fromkeys(plain_name(one.metric) for one in objectives)
    return [name for name in plain if name != "accuracy" and describe(name).better == "higher"]


def available_in(studies: Iterable[StudyFolder]) -> list[str]:
    """What a table of these studies may show: METRICS, their objectives and their own metrics."""
    recorded: list[str] = []
    for study in studies:
        recorded += [one.metric for one in study.objectives]
        for record in study.records().complete:
            recorded += [name for name in record.metrics if name not in recorded]
    objectives = {plain_name(one.metric) for study in studies for one in study.objectives}
    own = [name for name in further(recorded) if name in objectives or name not in ours()]
    return [*METRICS, *own]


def resampled_with(objectives: Iterable[Objective], in_groups: bool) -> list[str]:
    """The columns that are compared by resampling, with those of the objectives.

    in_groups: samples belong together, and only the metrics of the papers are compared.
    """
    more = [] if in_groups else further(one.metric for one in objectives)
    return [*COLUMNS, *with_scaled(name for name in more if name in RESAMPLED)]


class Heading(NamedTuple):
    """A column's title, its unit, and whether it is after temperature scaling."""

    title: str
    unit: str
    after: bool

    @property
    def with_unit(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


def heading(name: str) -> Heading:
    metric = describe(name)
    return Heading(metric.heading or first_upper(metric.label), _unit(metric), metric.name != name)


def shown(value: float, name: str) -> str:
    """A value in its column's unit, rounded."""
    metric = describe(name)
    unit = _unit(metric)
    if unit == "%":
        return f"{100 * value:.{metric.decimals}f}"
    return f"{value:.{metric.decimals if unit else metric.decimals + 2}f}"


def _unit(metric: Metric) -> str:
    """Nothing for values without a unit that are no fractions."""
    if metric.unit or (metric.largest != 1 and not metric.heading):
        return metric.unit
    return "%"
