"""Searched values drawn where some trials have none: those of conditional ranges."""

import matplotlib.collections
import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import create_trial

from study.analysis.importance import searched
from study.report.figures import draw_searched
from study.schema.objective import Objective
from study.store.trials import TrialRecord
from trainables.plain import Value

OBJECTIVES = [Objective("accuracy", "maximize")]
RANGES: dict[str, BaseDistribution] = {
    "optimizer.name": CategoricalDistribution(["sgd", "adam"]),
    "optimizer.momentum": FloatDistribution(0.0, 1.0),
    "optimizer.nesterov": CategoricalDistribution([True, False]),
}


def test_a_trial_is_drawn_where_it_has_a_value() -> None:
    trials, records = [], []
    for number in range(20):
        params: dict[str, Value] = {"optimizer.name": "adam"}
        if number % 2:
            params = {
                "optimizer.name": "sgd",
                "optimizer.momentum": number / 20,
                "optimizer.nesterov": number % 4 == 1,
            }
        ranges = {path: RANGES[path] for path in params}
        trials.append(create_trial(params=params, distributions=ranges, values=[number / 20]))
        trials[-1].number = number
        metrics = {"accuracy": number / 20}
        records.append(TrialRecord("focal", number, "complete", params, metrics))
    found = searched(trials, OBJECTIVES)
    assert found.importances is not None and set(found.importances) == set(RANGES)
    figure = draw_searched(found, records, [], OBJECTIVES, ("tab:blue", "o"), "focal")
    drawn = {}
    for axes in figure.axes:
        (points,) = [
            one.get_offsets()
            for one in axes.collections
            if isinstance(one, matplotlib.collections.PathCollection) and len(one.get_offsets())
        ]
        x = np.ma.filled(np.ma.asarray(points, np.float64), np.nan)[:, 0]
        drawn[axes.get_xlabel()] = int(np.isfinite(x).sum())
    assert drawn == {"optimizer.name": 20, "optimizer.momentum": 10, "optimizer.nesterov": 10}
