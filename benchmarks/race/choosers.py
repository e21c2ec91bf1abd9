"""Which trial each way of choosing takes, of the same trials and on validation alone.

    python -m benchmarks.race.choosers studies/race_newsgroups  # `--trial METHOD/NUMBER ...`

Prints what to add to `calstudy confirm`, so that every trial taken is measured on test.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.study import StudyDirection
from optuna.trial import create_trial

from study.analysis.ranking import Ranking
from study.analysis.rule import decide
from study.schema.objective import Objective
from study.store.study import StudyFolder, open_directory
from study.store.trials import TrialRecord

BUDGETS = (6, 12, 24)  # trials of each method
ACCURACY = "highest accuracy"
ECE = "lowest ECE"
KNEE = "knee of the front"
JOINT = "one TPE over all methods, then the rule"
BEFORE = "answer before confirming"
CHOOSERS = (ACCURACY, ECE, KNEE, JOINT, BEFORE)


def taken(study: StudyFolder) -> dict[str, dict[int, str]]:
    """The trial that each chooser takes, by how many trials each method had.

    Each but JOINT chooses among the first trials of each method. Optuna's best trials are among all
    but those that guess.
    """
    ranking = Ranking(study, study.records())
    spaces = {one.label: dict(one.space.distributions) for one in study.spec.variants}
    every = ranking.records.complete
    # With all trials there is nothing left to propose.
    first = joint(spaces, study.objectives, every, BUDGETS[-2] * len(spaces))
    found: dict[str, dict[int, str]] = {name: {} for name in CHOOSERS}
    for budget in BUDGETS:
        counted = [one for one in ranking.eligible if one.number < budget]
        measured = [one for one in every if one.number < budget and one.name not in ranking.refused]
        found[ACCURACY][budget] = max(measured, key=lambda one: one.metrics["accuracy"]).name
        found[ECE][budget] = min(measured, key=lambda one: one.metrics["ece"]).name
        knee = ranking.knee_among(counted)
        assert knee is not None
        found[KNEE][budget] = knee.name
        found[BEFORE][budget] = _by_rule(study, counted).name
        names = set(first[: budget * len(spaces)])
        if budget == BUDGETS[-1]:
            names = {one.name for one in every}
        found[JOINT][budget] = _by_rule(
            study, [one for one in ranking.eligible if one.name in names]
        ).name
    return found


def front_of(study: StudyFolder) -> list[str]:
    """What `calstudy confirm` confirms by itself."""
    ranking = Ranking(study, study.records())
    assert ranking.knee is not None
    first = _by_rule(study, ranking.eligible)
    return list(dict.fromkeys(one.name for one in (first, ranking.knee, *ranking.front)))


def _by_rule(study: StudyFolder, records: Sequence[TrialRecord]) -> TrialRecord:
    decision = decide(study, records)
    assert decision is not None
    return decision.taken


# ---- one TPE over all methods --------------------------------------------------------------------


def joint(
    spaces: Mapping[str, dict[str, BaseDistribution]],
    objectives: Sequence[Objective],
    records: Sequence[TrialRecord],
    trainings: int,
    seed: int = 0,
) -> list[str]:
    """The trials that Optuna's TPE would have, with the method as a category, in order.

    A replay: what it proposes is the nearest trial of that method that is not used yet; of a method
    that is used up, one of another at random.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # `group`
    rng = np.random.default_rng(seed)
    category = CategoricalDistribution(list(spaces))
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True)
    directions = [StudyDirection[one.direction.upper()] for one in objectives]
    search = optuna.create_study(sampler=sampler, directions=directions)
    left = {one.name: one for one in records}
    used: list[str] = []
    while left and len(used) < trainings:
        proposed = search.ask()
        label = proposed.suggest_categorical("method", list(spaces))
        wanted = {
            path: _suggested(proposed, f"{label}.{path}", along)
            for path, along in spaces[label].items()
        }
        search.tell(proposed, state=optuna.trial.TrialState.FAIL)  # the one trained stands for it
        own = [one for one in left.values() if one.label == label]
        if own:
            trained = min(own, key=lambda one: _distance(wanted, one, spaces[label]))
        else:
            trained = left[str(rng.choice(list(left)))]
        del left[trained.name]
        used.append(trained.name)
        own_space = spaces[trained.label]
        known = {path: trained.params[path] for path in own_space}
        search.add_trial(
            create_trial(
                params={"method": trained.label}
                | {f"{trained.label}.{path}": value for path, value in known.items()},
                distributions={"method": category}
                | {f"{trained.label}.{path}": space for path, space in own_space.items()},
                values=[trained.metrics[one.metric] for one in objectives],
            )
        )
    return used


def _suggested(proposed: optuna.Trial, name: str, along: BaseDistribution) -> Any:
    if isinstance(along, CategoricalDistribution):
        return proposed.suggest_categorical(name, along.choices)
    assert isinstance(along, FloatDistribution)
    return proposed.suggest_float(name, along.low, along.high, log=along.log)


def _distance(
    wanted: dict[str, Any], record: TrialRecord, space: dict[str, BaseDistribution]
) -> float:
    """Squares of the distances along the ranges, which are 1 wide; another category is 1 away."""
    total = 0.0
    for path, along in space.items():
        one: Any = wanted[path]
        other: Any = record.params[path]
        if isinstance(along, CategoricalDistribution):
            total += one != other
            continue
        assert isinstance(along, FloatDistribution)
        scale = math.log if along.log else float
        total += ((scale(one) - scale(other)) / (scale(along.high) - scale(along.low))) ** 2
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.race.choosers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("directory", type=Path, help="of a finished search")
    directory = parser.parse_args().directory
    study = open_directory(directory, directory.name)
    names = {name for of in taken(study).values() for name in of.values()}
    print(" ".join(f"--trial {name}" for name in sorted(names)))


if __name__ == "__main__":
    main()
