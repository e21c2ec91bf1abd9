"""The answer's trial and its values, as plain facts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from study.analysis.ranking import served_with_nll
from study.answer.choice import Choice, mean_of
from study.answer.said import Answer
from study.store.study import StudyFolder


@dataclass(frozen=True)
class Named:
    """The answer's model: the study's trial, else its label; empty where there is none.

    trial: the trial of the study that it is, or was retrained from; empty for a method's default.
    values: the objectives and NLL on validation; with `test/` before it, on test.
    """

    model: str = ""
    trial: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


def named(study: StudyFolder, found: Answer) -> Named:
    """What the study's answer names. Of a confirmed model, the values are means over seeds."""
    choice = found.choice
    if choice is None:
        return Named()
    wanted = list(dict.fromkeys(one.metric for one in (*study.objectives, *served_with_nll(study))))
    trial = _trial(study, choice)
    if choice.row is None:
        return Named(trial, trial, _among(choice.record.metrics, wanted))
    tests = _means(choice.row.tests, wanted)
    values = _among(mean_of(choice.row).metrics, wanted)
    values |= {f"test/{name}": value for name, value in tests.items()}
    return Named(trial or choice.row.label, trial, values)


def measured(choice: Choice) -> tuple[str, Mapping[str, float]]:
    """The split that shows best what the model is worth, and all its values there: on test those of
    a confirmed model, as means over seeds, else those of validation."""
    if choice.row is None or not choice.row.tests:
        return "validation", choice.record.metrics
    names = dict.fromkeys(name for seed in choice.row.tests for name in seed)
    return "test", _means(choice.row.tests, [*names])


def _trial(study: StudyFolder, choice: Choice) -> str:
    """The study's trial: the one chosen, or the one that was retrained."""
    if choice.study.id == study.id:
        return choice.record.name
    return choice.names["trial"] or ""


def _among(metrics: Mapping[str, float], wanted: Sequence[str]) -> dict[str, float]:
    return {name: metrics[name] for name in wanted if name in metrics}


def _means(seeds: Sequence[Mapping[str, float]], wanted: Sequence[str]) -> dict[str, float]:
    found = {name: [values[name] for values in seeds if name in values] for name in wanted}
    return {name: statistics.fmean(values) for name, values in found.items() if values}
