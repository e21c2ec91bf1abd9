"""Test scores are data: columns and predictions of a confirmation, and nothing is selected by
them."""

from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from search_spaces import strict_yaml
from study import Study
from study.analysis.selection import pick
from study.engine import confirm
from study.store.openings import TEST_FILE
from study.store.study import open_study
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import made_study, random_predictions
from trainables.outputs.predictions import Predictions
from trainables.problems import FieldError

# On validation the first of three seeds is best.
SEEDS = [({"accuracy": 0.9 - 0.1 * seed, "ece": 0.02 + 0.01 * seed}, []) for seed in range(3)]
NAMES = [f"focal_0001/000{seed}" for seed in range(3)]


def on_test(seed: int) -> Predictions:
    """The second seed answers all of test rightly."""
    found = random_predictions(100 + seed, samples=360)
    return Predictions(found.logits, found.logits.argmax(-1)) if seed == 1 else found


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A search, and its confirmation with three seeds, of which two are measured on test."""
    made_study(tmp_path, "made", {"focal": SEEDS[:2]})
    made_study(tmp_path, "made-confirm", {"focal_0001": SEEDS})
    file = tmp_path / "made-confirm" / "study.yaml"
    file.write_text(strict_yaml.dump({**strict_yaml.read(file), "confirms": "made"}))
    study = open_study("made-confirm", str(tmp_path))
    log = confirm.TestAccessLog.of(study, tmp_path / "made")
    for record in study.records()[:2]:
        answers = on_test(record.number)
        digest = answers.save(study.files(record) / TEST_FILE)
        found = answers.evaluate_at(1.5)
        told = confirm.Tested(log.open(record), found, 1.5, {TEST_FILE: digest}, 1.7e9)
        log.record(record, told)
    return tmp_path


def accuracy(answers: Predictions) -> float:
    logits, labels = answers.logits.numpy(), answers.labels.numpy()
    return float(np.mean(np.argmax(logits, axis=1) == labels))


def test_a_confirmation_has_the_test_scores_of_each_seed(storage: Path) -> None:
    frame = Study.open("made-confirm", storage).trials()
    assert frame.trial.tolist() == NAMES
    assert frame.test_accuracy.tolist()[:2] == pytest.approx([accuracy(on_test(n)) for n in (0, 1)])
    assert frame.test_accuracy.isna().tolist() == [False, False, True]
    assert {"test_nll", "test_ece", "test_ts_ece"} <= {*frame}
    assert frame.accuracy.tolist() == pytest.approx([0.9, 0.8, 0.7])  # validation, as before


def test_the_table_has_them_too_and_a_search_never(storage: Path) -> None:
    file = storage / "all.csv"
    here("trials", "made-confirm", "--storage", storage, "--csv", file)
    shown = pandas.read_csv(file)
    frame = Study.open("made-confirm", storage).trials()
    assert shown.test_accuracy.tolist()[:2] == pytest.approx(frame.test_accuracy.tolist()[:2])
    assert here_json("trials", "made-confirm", "--storage", storage)[2]["test_ece"] is None
    assert not [name for name in Study.open("made", storage).trials() if "test" in name]
    here("trials", "made", "--storage", storage, "--csv", file)
    assert "test" not in file.read_text()


def test_the_front_and_the_order_are_by_validation(storage: Path) -> None:
    frame = Study.open("made-confirm", storage).trials()
    assert frame.test_accuracy[0] < frame.test_accuracy[1] == 1
    assert frame.front.tolist() == [True, False, False]
    assert Study.open("made-confirm", storage).front().trial.tolist() == [NAMES[0]]


@pytest.mark.parametrize(
    "keys",
    [
        {"objectives": [{"metric": "test_ece", "direction": "minimize"}]},
        {"constraints": ["test_accuracy >= 0.9"]},
        {"early_stopping": {"at": 0.5, "keep": 0.5, "by": ["test_ece"]}},
        {"matters": {"test_ece": 0.01}},
    ],
    ids=lambda keys: next(iter(keys)),
)
def test_no_key_names_a_test_score(keys: dict[str, object], tmp_path: Path) -> None:
    spec = write_spec(tmp_path / "small.yaml", **keys)
    key = next(iter(keys))
    shown = here("plan", spec, "--storage", tmp_path, check=2)
    assert f"small.yaml: {key}" in shown and "test_" in shown


@pytest.mark.parametrize(
    "words",
    [
        ("pareto", "made-confirm", "--where", "test_accuracy>=0.1"),
        ("pareto", "made", "--where", "test_accuracy>=0.1"),
    ],
    ids=" ".join,
)
def test_nothing_is_selected_by_a_test_score(words: tuple[str, ...], storage: Path) -> None:
    assert "test_" in here(*words, "--storage", storage, check=2)
    study = open_study(words[1], str(storage))
    with pytest.raises(FieldError, match="test_ece"):
        pick(study.records(), study.objectives, "min test_ece")


def test_predictions_on_test_are_what_an_opening_wrote(storage: Path) -> None:
    study = Study.open("made-confirm", storage)
    openings = (storage / "made-confirm" / "ledger.log").read_bytes()
    found = study.predictions(NAMES[1], split="test")
    assert torch.equal(found.logits, on_test(1).logits)
    assert torch.equal(found.labels, on_test(1).labels)
    assert (storage / "made-confirm" / "ledger.log").read_bytes() == openings


def test_where_test_was_not_opened_there_are_none(storage: Path) -> None:
    study = Study.open("made-confirm", storage)
    with pytest.raises(FieldError, match=r"not measured on the test split. Run: calstudy confirm"):
        study.predictions(NAMES[2], split="test")
    with pytest.raises(FieldError, match=r"split: made is a search.* Open made-confirm"):
        Study.open("made", storage).predictions("focal/1", split="test")
    with pytest.raises(FieldError, match=r"there is no split 'tset'\. Did you mean 'test'\?"):
        study.predictions(NAMES[1], split="tset")


def test_a_changed_file_is_not_read(storage: Path) -> None:
    random_predictions(7).save(storage / f"made-confirm/trials/{NAMES[1]}/attempt-1/{TEST_FILE}")
    with pytest.raises(FieldError, match="has changed"):
        Study.open("made-confirm", storage).predictions(NAMES[1], split="test")
