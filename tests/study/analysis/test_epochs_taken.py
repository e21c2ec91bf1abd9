"""Which epoch each `result` would have taken: against training with that `result`, and by hand."""

import csv
import json
from typing import Any

import numpy as np
import pytest
import torch
from optuna.distributions import FloatDistribution

from study.analysis.epochs_taken import RESULTS, epoch_taken, epochs_taken
from study.cli import main
from tests.study.made import made_study
from trainables.config import TrialConfig
from trainables.loading.trial_data import trial_data
from trainables.problems import FieldError
from trainables.training.learner import Learner

CPU = torch.device("cpu")
# accuracy, NLL and ECE after each epoch.
FIRST = [(0.50, 1.0, 0.30), (0.75, 0.4, 0.20), (0.75, 0.6, 0.10), (0.70, 0.8, 0.10)]
SECOND = [(0.50, 1.0, 0.02), (0.75, 0.8, 0.20), (0.80, 0.6, 0.10), (0.90, 0.7, 0.10)]


def rows_of(values: list[tuple[float, float, float]]) -> list[dict[str, float]]:
    return [
        {"epoch": epoch, "accuracy": accuracy, "nll": nll, "ece": ece}
        for epoch, (accuracy, nll, ece) in enumerate(values, 1)
    ]


def told(*histories: list[tuple[float, float, float]]) -> Any:
    return [({"accuracy": 0.9, "ece": 0.1}, rows_of(each)) for each in histories]


def trained(result: str) -> Learner:
    plain = {"data": "digits", "model": {"name": "mlp", "width": 16}, "method": "cross_entropy"}
    config = TrialConfig.from_mapping({**plain, "epochs": 12, "result": result})
    learner = Learner(config, trial_data(config, CPU), CPU)
    while not learner.finished:
        learner.train_epoch()
    return learner


@pytest.mark.parametrize("result", RESULTS)
def test_it_is_the_epoch_that_training_with_that_result_takes(result):
    history = trained("last").history
    learner = trained(result)
    taken = epoch_taken(history, result)
    assert taken["epoch"] == learner.take_result()
    assert learner.predict().evaluate()["nll"] == pytest.approx(taken["nll"], rel=1e-6)


def test_of_equals_it_is_the_first_and_means_are_over_seeds(tmp_path):
    """Each seed takes its own epoch; sd with n - 1, by NumPy."""
    rows = epochs_taken(made_study(tmp_path, "repeats", {"mbls": told(FIRST, SECOND)}))
    epochs = {
        "last": (4, 4),
        "best_accuracy": (2, 4),
        "best_nll": (2, 3),
        "best_ece": (3, 1),
    }
    assert [row["result"] for row in rows] == list(epochs)
    for row in rows:
        assert (row["method"], row["trial"], row["seeds"]) == ("mbls", None, 2)
        taken = epochs[row["result"]]
        found = np.array([FIRST[taken[0] - 1], SECOND[taken[1] - 1]])
        columns = {
            "epoch": np.array(taken),
            "error": 1 - found[:, 0],
            "nll": found[:, 1],
            "ece": found[:, 2],
        }
        for name, values in columns.items():
            assert row[name] == pytest.approx(values.mean())
            assert row[f"{name}_sd"] == pytest.approx(values.std(ddof=1))


def test_of_a_search_it_is_the_best_trial(tmp_path):
    trials = told(FIRST, SECOND)
    trials[1][0]["accuracy"] = 0.95
    space = {"method.gamma": FloatDistribution(0.0, 5.0)}
    rows = epochs_taken(made_study(tmp_path, "searched", {"focal": trials}, space))
    assert {row["trial"] for row in rows} == {"focal/0001"}
    assert [row["epoch"] for row in rows] == [4, 4, 3, 1]
    assert {row["error_sd"] for row in rows} == {None}


def test_a_lost_history_and_no_complete_trial_are_each_one_line(tmp_path):
    study = made_study(tmp_path, "torn", {"mbls": told(FIRST, SECOND)})
    file = study.files(study.records().of("mbls")[1]) / "history.json"
    file.unlink()
    with pytest.raises(FieldError, match=r"^mbls/0001: .*history\.json is missing"):
        epochs_taken(study)
    with pytest.raises(FieldError, match=r"^none: no complete trial\. Run `calstudy run"):
        epochs_taken(made_study(tmp_path, "none", {"mbls": [({}, [])]}))


def calstudy(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_table_csv_and_json_have_the_same_rows(tmp_path, capsys):
    study = made_study(tmp_path, "repeats", {"mbls": told(FIRST, SECOND), "brier": told(FIRST)})
    words = ("trials", "repeats", "--epochs", "--storage", tmp_path)
    table = calstudy(capsys, *words).splitlines()
    assert table[0].split() == ["method", "of", "result", "epoch", "error", "nll", "ece"]
    seeds = "mbls 2 seeds best_nll 2.5 ± 0.7 0.2250 ± 0.0354 0.5000 ± 0.1414 0.1500 ± 0.0707"
    assert " ".join(table[3].split()) == seeds
    brier = "brier brier/0000 best_nll 2 0.2500 0.4000 0.2000"
    assert " ".join(table[7].split()) == brier
    assert "looks better than it is" in table[9]
    rows = epochs_taken(study)
    assert json.loads(calstudy(capsys, *words, "--json")) == rows
    calstudy(capsys, *words, "--csv", tmp_path / "epochs.csv")
    with (tmp_path / "epochs.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [row["result"] for row in written] == [*RESULTS, *RESULTS]
    assert [float(row["ece"]) for row in written] == [row["ece"] for row in rows]
