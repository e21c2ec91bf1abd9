"""Importances by objectives given afterwards: those of Optuna for trials that have these values."""

import optuna
import pytest
from optuna.distributions import FloatDistribution

from study.analysis.importance import importances, revalued
from study.schema.objective import Objective
from study.store.trials import TrialRecord

SPACE = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
NLL = Objective("nll", "minimize")


def test_the_values_are_those_of_the_objectives_given() -> None:
    """NLL is x alone; what the study searched for was y alone."""
    study = optuna.create_study(directions=["maximize", "minimize"])
    records = []
    for number in range(32):
        params = {"x": number / 32, "y": number * 7 % 32 / 32}
        study.add_trial(
            optuna.trial.create_trial(
                params=params, distributions=dict(SPACE), values=[params["y"], params["y"]]
            )
        )
        records.append(TrialRecord("focal", number, "complete", {}, {"nll": params["x"]}))
    left_out = records[3:]  # as if three had no NLL
    found = revalued(study.trials, left_out, [NLL])
    assert [trial.values for trial in found] == [[one.metrics["nll"]] for one in left_out]
    assert [trial.number for trial in found] == list(range(3, 32))
    shares = importances(found, [NLL])
    assert shares["x"][0] > 0.9 and shares["y"][0] < 0.1
    assert [trial.values[0] for trial in study.trials] == pytest.approx(
        [number * 7 % 32 / 32 for number in range(32)]
    )
