"""A study without a search is its own confirmation: its trials are measured on test, once each,
and nothing is trained again."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient

from search_spaces import strict_yaml
from study.answer.confirmation import results_of
from study.audit.audit import audit
from study.audit.result import AuditReport
from study.engine import candidates
from study.engine import confirm as confirming
from study.store.confirmed import can_confirm_itself
from study.store.study import StudyFolder, open_study
from tests.shared import made_once
from tests.study.command_line import here, here_json, write_spec
from tests.study.made import unanswered as unanswered  # fixture
from tests.study.trained import copy_of
from trainables.loading.cache import prepare

pytestmark = pytest.mark.slow

METHODS = [
    "cross_entropy",
    {"label": "focal_3", "name": "focal", "gamma": 3.0, "values": {"optimizer.lr": 0.05}},
]


def spec(folder: Path, **keys: Any) -> Path:
    return write_spec(
        folder / "fixed.yaml",
        **{"name": "fixed", "methods": METHODS, "trials": 2, "search_space": {}, **keys},
    )


def make_trained(storage: Path) -> None:
    here("run", spec(storage), "--storage", storage)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    return copy_of(made_once("fixed", make_trained), tmp_path)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained one, confirmed: only to read, or for what is refused. `shown`: what its answer was
    before, and what the command printed."""
    storage = copy_of(made_once("fixed", make_trained), tmp_path_factory.mktemp("measured"))
    before = here("answer", "fixed", "--storage", storage)
    shown = here("confirm", "fixed", "--storage", storage)
    (storage / "shown.json").write_text(json.dumps([before, shown]))
    return storage


def opened(storage: Path, name: str = "fixed") -> StudyFolder:
    return open_study(name, str(storage))


def audited(storage: Path) -> AuditReport:
    study = opened(storage)
    return audit(study, study.tracking(None))


def problems(report: AuditReport) -> list[str]:
    return [str(found) for check in report.checks for found in check.offenders]


def openings(storage: Path) -> int:
    return next(each.counted for each in audited(storage).checks if each.name == "openings")


def attempts(storage: Path) -> set[Path]:
    return {found.relative_to(storage) for found in storage.glob("fixed/trials/*/*/attempt-*")}


def test_its_trials_are_measured_and_nothing_is_trained(measured: Path) -> None:
    before = attempts(made_once("fixed", make_trained))
    _, shown = json.loads((measured / "shown.json").read_text())
    assert shown.startswith(
        "fixed: nothing is retrained; opens the sealed test split, once for each"
    )
    assert "the test split was opened for 4 models, once each" in shown
    assert "The study has no search: its own trials were measured" in shown
    assert attempts(measured) == before and not (measured / "fixed-confirm").exists()
    again = here("confirm", "fixed", "--storage", measured)
    assert "was opened" not in again and openings(measured) == 4
    report = audited(measured)
    assert (problems(report), report.planned, report.duplicated) == ([], 4, 0)


def test_what_it_measures_is_the_test_split(measured: Path) -> None:
    """Accuracy and NLL of each network's own logits, in plain NumPy."""
    study = opened(measured)
    prepared = prepare(study.spec.data, study.spec.seed)
    labels = np.load(prepared.directory / "test_labels.npy")
    found = results_of(study).confirmation
    assert found is not None and [row.role for row in found.rows] == ["baseline", "method"]
    for row in found.rows:
        assert row.candidate is None and len(row.tests) == 2
        for record, metrics in zip(row.records, row.tests, strict=True):
            logits = np.load(study.files(record) / "test.npz")["logits"].astype(float)
            right = logits.argmax(axis=1) == labels
            logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            assert metrics["accuracy"] == pytest.approx(right.mean())
            assert metrics["nll"] == pytest.approx(-logs[np.arange(len(labels)), labels].mean())


def test_answer_report_trials_and_mlflow_read_it_as_a_confirmation(
    measured: Path, tmp_path: Path
) -> None:
    before, _ = json.loads((measured / "shown.json").read_text())
    assert "measures these trials on the test split, without training" in before
    said = here("answer", "fixed", "--storage", measured)
    assert "sealed test images" in said and "2 seeds" in said and "for now" not in said
    few = ("--bootstrap", 100, "--storage", measured)
    assert "**fixed**, test split" in here("report", "fixed", "--format", "md", *few)
    here("report", "fixed", "--output", tmp_path / "page.html", *few)
    page = (tmp_path / "page.html").read_text()
    assert '"itself":true' in page.replace(": ", ":")
    here("trials", "fixed", "--csv", tmp_path / "t.csv", "--storage", measured)
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert len(rows) == 4 and all(0 < float(row["test_accuracy"]) <= 1 for row in rows)
    client = MlflowClient(f"sqlite:///{measured}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'fixed'")
    runs = client.search_runs([experiment.experiment_id])
    tested = [run for run in runs if "test/ece" in run.data.metrics]
    assert len(tested) == 4
    here("export", "fixed", "--name", "fixed", "--storage", measured)
    (version,) = client.search_model_versions("name = 'fixed'")
    assert "## Confirmation: 2 seeds of `" in version.description
    assert "| | validation | test |" in version.description


@pytest.mark.platform
def test_seeds_added_later_are_counted(trained: Path) -> None:
    here("confirm", "fixed", "--storage", trained)
    here("run", spec(trained), "--trials", 3, "--storage", trained)
    report = audited(trained)
    assert problems(report) == [] and any(check.pending for check in report.checks)
    waiting = here("answer", "fixed", "--storage", trained)
    assert "resumes the confirmation, which is not finished" in waiting
    shown = here("confirm", "fixed", "--storage", trained)
    assert "1 of 3 seeds added after test results were seen" in shown
    table = here("report", "fixed", "--format", "md", "--storage", trained)
    assert "1 of 3 seeds added after test results were seen" in " ".join(table.split())
    assert openings(trained) == 6


@pytest.mark.platform
def test_a_method_added_later_is_counted_with_all_its_seeds(trained: Path) -> None:
    here("confirm", "fixed", "--storage", trained)
    more = [*METHODS, {"label": "ls", "name": "label_smoothing", "epsilon": 0.05}]
    here("run", spec(trained, methods=more), "--storage", trained)
    assert "2 of 2 seeds of ls added after" in here("confirm", "fixed", "--storage", trained)


def test_nothing_can_be_searched_once_it_was_measured(measured: Path) -> None:
    with_search = spec(measured, methods=[*METHODS, "mbls"])
    said = here("run", with_search, "--storage", measured, check=2)
    assert "was measured on test, so nothing can be searched in it any more" in said


@pytest.mark.platform
def test_the_number_of_seeds_is_recorded_before_the_first_opening(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill before anything was opened: the study says how many seeds it had."""

    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(confirming, "measure", killed)
    here("confirm", "fixed", "--storage", trained, check=None)
    recorded = strict_yaml.read(trained / "fixed" / "study.yaml")["recorded"]["confirmation"]
    assert recorded == {
        "name": "fixed",
        "openings": 0,
        "seeds": {"cross_entropy": 2, "focal_3": 2},
    }
    monkeypatch.undo()
    here("run", spec(trained), "--trials", 3, "--storage", trained)  # nothing was seen yet
    assert "added after" not in here("confirm", "fixed", "--storage", trained)
    assert openings(trained) == 6


@pytest.mark.platform
def test_a_kill_between_an_opening_and_its_result(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = confirming.TestAccessLog.record
    calls = []

    def killed(self: Any, *words: Any) -> None:
        calls.append(words)
        if len(calls) == 2:
            raise KeyboardInterrupt
        record(self, *words)

    monkeypatch.setattr(confirming.TestAccessLog, "record", killed)
    here("confirm", "fixed", "--storage", trained, check=None)
    monkeypatch.undo()
    shown = here("confirm", "fixed", "--storage", trained)
    assert "1 openings have no result" in shown
    assert problems(audited(trained)) == [] and openings(trained) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--top", "1"], "has no search, so there is nothing to choose"),
        (["--until", "0"], "Leave out what chooses trials or limits a race."),
        (["--seeds", "5"], "--seeds: has no search: its 2 trials for each method are its seeds"),
    ],
)
def test_what_it_cannot_do_is_said(trained: Path, words: list[str], said: str) -> None:
    assert said in here("confirm", "fixed", *words, "--storage", trained, check=2)


def test_all_trials_must_have_ended(trained: Path) -> None:
    file = trained / "fixed" / "study.yaml"
    file.write_text(file.read_text().replace("\ntrials: 2", "\ntrials: 3"))
    said = here("confirm", "fixed", "--storage", trained, check=2)
    assert "2 trials have not ended. Run `calstudy run fixed" in said
    assert json.loads(json.dumps(here_json("status", "fixed", "--storage", trained)))


@pytest.mark.parametrize(
    "keys",
    [
        {"keep_models": "front"},
        {"early_stopping": {"at": 0.5, "keep": 0.5, "by": ["ece"]}, "epochs": 2},
        {"search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5}}},
    ],
    ids=["models_gone", "stopped_early", "search"],
)
@pytest.mark.platform
def test_others_are_retrained_as_before(tmp_path: Path, keys: dict[str, Any]) -> None:
    here("run", spec(tmp_path, **keys), "--storage", tmp_path)
    assert not can_confirm_itself(opened(tmp_path))
    here("confirm", "fixed", "--seeds", 1, "--storage", tmp_path)
    assert opened(tmp_path, "fixed-confirm").confirms == "fixed"
    assert not opened(tmp_path).confirms_itself


@pytest.mark.usefixtures("unanswered")
def test_a_confirmation_begun_before_goes_on(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an earlier version, which retrained the trials of such a study too."""
    with monkeypatch.context() as patch:
        patch.setattr(candidates, "can_confirm_itself", lambda study: False)
        here("confirm", "fixed", "--seeds", 1, "--storage", trained)
    assert "resumes" not in here("answer", "fixed", "--storage", trained)
    here("confirm", "fixed", "--seeds", 2, "--storage", trained)
    assert opened(trained, "fixed-confirm").planned == 2 and not opened(trained).confirms_itself
    assert problems(audited(trained)) == []
