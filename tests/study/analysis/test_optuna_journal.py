"""The journal for optuna-dashboard: what Optuna itself takes for the best trials."""

from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from study.analysis.optuna_journal import write_journal
from study.analysis.pareto import front
from study.analysis.ranking import Ranking
from tests.study.made import Trial, made_study


def best(journal: Path, label: str) -> list[int]:
    storage = JournalStorage(JournalFileBackend(str(journal)))
    found = optuna.load_study(study_name=f"small/{label}", storage=storage)
    return sorted(trial.number for trial in found.best_trials)


@pytest.mark.parametrize("constraint", ["accuracy >= best - 0.1", "accuracy >= 0.86", None])
def test_best_trials_are_the_front_of_those_that_count(tmp_path: Path, constraint: str) -> None:
    """Of a relative constraint too, which the first trials met until a better one of another method
    came, and of trials that guess."""
    told = {
        "focal": [(0.80, 0.01), (0.88, 0.03), (0.86, 0.02), (0.40, 0.001), (0.85, 0.05)],
        "mbls": [(0.95, 0.10), (0.83, 0.02)],
    }
    trials: dict[str, list[Trial]] = {
        label: [({"accuracy": accuracy, "ece": ece}, []) for accuracy, ece in found]
        for label, found in told.items()
    }
    trials["focal"].append(({}, []))  # it failed
    study = made_study(tmp_path, "small", trials, majority=0.5)
    conditions = [] if constraint is None else [constraint]
    study = replace(study, plain={**study.plain, "constraints": conditions})
    file = tmp_path / "copies" / "small.log"
    assert write_journal(study, file) == 8
    ranking = Ranking(study, study.records())
    for label in told:
        counted = [one for one in ranking.eligible if one.label == label]
        ours = sorted(one.number for one in front(counted, study.objectives))
        assert best(file, label) == ours
    assert best(file, "focal") == ([0, 1, 2] if constraint is None else [1, 2])
    # The ledger has no constraints: the trial that guesses is on its front.
    assert 3 in best(study.directory / "ledger.log", "focal")
