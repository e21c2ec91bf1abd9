"""Conditional ranges through a whole study: what is recorded, mirrored, shown and retrained."""

from typing import Any

import mlflow
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from study.answer.confirmation import results_of
from study.answer.settings import settings_of
from study.engine.candidates import Asked, confirming_spec
from study.store.study import StudyFolder, open_study
from tests.study.command_line import here, write_spec
from trainables.plain import Plain

SPACE: dict[str, Plain] = {
    "optimizer.name": {"choices": ["sgd", "adam"]},
    "optimizer.lr": {"low": 0.01, "high": 0.1, "log": True},
    "optimizer.momentum": {"low": 0.5, "high": 0.99},
}
ALWAYS = {"optimizer.name", "optimizer.lr"}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    root = tmp_path_factory.mktemp("storage")
    keys: dict[str, Any] = {"methods": ["cross_entropy"], "trials": 6, "epochs": 1}
    first = [{"optimizer.name": "adam"}]
    spec = write_spec(root / "small.yaml", **keys, search_space=SPACE, try_first=first)
    here("run", spec, "--storage", root)
    return open_study("small", str(root))


def test_only_trials_of_sgd_have_a_momentum(study: StudyFolder) -> None:
    """In Optuna's own reading of the ledger, in MLflow, in tables and in the words of an answer."""
    storage = JournalStorage(JournalFileBackend(str(study.directory / "ledger.log")))
    theirs = optuna.load_study(study_name="small/cross_entropy", storage=storage).trials
    names = [trial.params["optimizer.name"] for trial in theirs]
    assert names[0] == "adam" and {*names} == {"sgd", "adam"}
    expected = [ALWAYS | ({"optimizer.momentum"} if one == "sgd" else set()) for one in names]
    assert [set(trial.params) for trial in theirs] == expected
    assert [set(trial.distributions) for trial in theirs] == expected
    root = study.directory.parent
    mlflow.set_tracking_uri(f"sqlite:///{root}/mlflow.db")
    runs = mlflow.search_runs(search_all_experiments=True, output_format="list")
    params = {run.data.tags.get("calstudy.trial"): run.data.params for run in runs}
    rows = here("trials", "small", "--storage", root).splitlines()
    for record, name in zip(study.records(), names, strict=True):
        has = name == "sgd"
        assert ("optimizer.momentum" in params[record.name]) == has
        assert ("optimizer.momentum" in settings_of(study, record)) == has
        (row,) = [line for line in rows if line.startswith(record.name)]
        assert ("momentum=" in row) == has
    assert "clean" in here("audit", "small", "--storage", root)


def test_what_is_retrained_has_no_momentum_for_adam(study: StudyFolder) -> None:
    every = [record.name for record in study.records()]
    spec = confirming_spec(results_of(study), Asked(trials=tuple(every)))[0]
    values = [dict(variant.values) for variant in spec.variants]
    assert len(values) >= len(every)
    assert {one["optimizer.name"] for one in values} == {"sgd", "adam"}
    for one in values:
        assert ("optimizer.momentum" in one) == (one["optimizer.name"] == "sgd")
