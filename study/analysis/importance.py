"""Searched hyperparameter values, and which of them distinguish the best trials."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from study.schema.objective import Objective
from study.store.trials import TrialRecord

LEAST = 16  # complete trials: with fewer, the best quarter is too small a group
BEST = 0.25  # fraction of the trials that importances contrast with the rest


@dataclass(frozen=True)
class Searched:
    """The values tried by one method's complete trials, in order of trial number.

    values: by path, None if a trial has none; ranges: of numeric paths, with log-scale ones in
    `log`; choices: all choices of categorical paths. importances: by path, one per objective (see
    `importances`); None with fewer than LEAST trials or a single path, which would get all of it.
    """

    numbers: list[int]
    values: dict[str, list[float | int | str | bool | None]]
    ranges: dict[str, tuple[float, float]]
    log: frozenset[str]
    choices: dict[str, list[str]]
    importances: dict[str, tuple[float, ...]] | None


def searched(trials: Sequence[FrozenTrial], objectives: Sequence[Objective]) -> Searched:
    """The searched values of one label's trials, in any state.

    `values` is empty if nothing was searched or no trial is complete.
    """
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    spaces: dict[str, BaseDistribution] = {}
    for trial in done:
        spaces |= trial.distributions
    ranges = {}
    log = set()
    choices = {}
    for path, kind in spaces.items():
        if isinstance(kind, CategoricalDistribution):
            choices[path] = [str(choice) for choice in kind.choices]
        elif isinstance(kind, FloatDistribution | IntDistribution):
            ranges[path] = (float(kind.low), float(kind.high))
            if kind.log:
                log.add(path)
    return Searched(
        [trial.number for trial in done],
        {path: [trial.params.get(path) for trial in done] for path in spaces},
        ranges,
        frozenset(log),
        choices,
        importances(done, objectives) if len(done) >= LEAST and len(spaces) > 1 else None,
    )


def revalued(
    trials: Sequence[FrozenTrial], records: Sequence[TrialRecord], objectives: Sequence[Objective]
) -> list[FrozenTrial]:
    """The complete trials of these records, with their values in objectives given afterwards."""
    by_number = {trial.number: trial for trial in trials}
    found = []
    for record in records:
        trial = copy.copy(by_number[record.number])
        trial.values = [record.metrics[one.metric] for one in objectives]
        found.append(trial)
    return found


def importances(
    trials: Sequence[FrozenTrial], objectives: Sequence[Objective]
) -> dict[str, tuple[float, ...]]:
    """The share in [0, 1] of what separates the best quarter of the trials from the rest.

    By path, one per objective. An objective's shares sum to 1; NaN if it is constant. Optuna's
    PED-ANOVA, Watanabe et al. 2023: single hyperparameters, no interactions. (fANOVA, of the whole
    variance, takes minutes for a thousand trials.)
    """
    directions = [StudyDirection[one.direction.upper()] for one in objectives]
    study = optuna.create_study(directions=directions)
    study.add_trials(trials)
    shares = [_shares(study, place, objective.sign) for place, objective in enumerate(objectives)]
    paths = sorted(set[str]().union(*shares))
    return {path: tuple(found.get(path, math.nan) for found in shares) for path in paths}


def _shares(study: optuna.Study, place: int, sign: float) -> dict[str, float]:
    # Loads scikit-learn: a second.
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    if len({trial.values[place] for trial in study.get_trials(deepcopy=False)}) < 2:
        return {}
    evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST)
    # It warns that lower is better, which holds here.
    with warnings.catch_warnings(action="ignore"):
        shares = get_param_importances(
            study, evaluator=evaluator, target=lambda trial: sign * trial.values[place]
        )
    return {path: float(share) for path, share in shares.items()}
