"""Front, knee, hypervolume and the answer in MLflow, as its own search finds them; audited."""

import math
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from study.answer.answer import answer
from study.answer.confirmation import results_of
from study.answer.values import Named, named
from study.audit.audit import audit
from study.schema.uris import embedded_tracking
from study.store.ledger import Ledger, open_storage
from study.store.study import StudyFolder, open_study
from study.tracking.artifacts import log_answer
from study.tracking.projection import sync
from study.tracking.study_summary import LONGEST, listed
from tests.study.made import Trial, asked, made_study, random_predictions
from tests.study.tracking.test_writer import content
from trainables.files.digest import file_digest
from trainables.outputs.outcome import Outcome

pytestmark = pytest.mark.slow

# Accuracy and ECE: 0 and 2 dominate 1; 3 failed.
MEASURED = [(0.9, 0.05), (0.85, 0.06), (0.8, 0.01), None]


def trial(values: tuple[float, float] | None) -> Trial:
    if values is None:
        return {}, []
    accuracy, ece = values
    metrics = {"accuracy": accuracy, "ece": ece, "ts_ece": ece, "nll": 0.5, "ts_nll": 0.4}
    rows = [{"epoch": epoch, "time": 1.7e9 + epoch, "train_loss": 1 / epoch} for epoch in (1, 2)]
    return metrics, rows


@pytest.fixture
def study(storage: Path) -> StudyFolder:
    trials = {"focal": [trial(each) for each in MEASURED]}
    return made_study(
        storage, "small", trials, predictions=lambda _, number: random_predictions(number)
    )


def uri_of(study: StudyFolder) -> str:
    return embedded_tracking(study.directory.parent)


def runs_of(study: StudyFolder) -> tuple[Run, dict[str, Run]]:
    """The study's own run, and those of its trials."""
    client = MlflowClient(uri_of(study))
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    runs = {
        run.data.tags.get("calstudy.trial", ""): run
        for run in client.search_runs([experiment.experiment_id])
    }
    return runs.pop(""), runs


def tagged(study: StudyFolder, tag: str) -> list[str]:
    """The trials that a search in MLflow finds by a tag."""
    client = MlflowClient(uri_of(study))
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], f"tags.`calstudy.{tag}` = 'yes'")
    return sorted(run.data.tags["calstudy.trial"] for run in found)


def with_another(study: StudyFolder, values: tuple[float, float]) -> StudyFolder:
    """The study with one trial more."""
    ledger = Ledger(open_storage(study.directory, None), study.name, study.id)
    ledger.open("focal", study.objectives)
    number = asked(ledger, "focal").number
    metrics, rows = trial(values)
    files = study.directory / "trials" / "focal" / f"{number:04d}" / "attempt-1"
    files.mkdir(parents=True)
    random_predictions(number).save(files / "predictions.npz")
    (files / "history.json").write_text(str(rows).replace("'", '"'))
    ledger.begin_attempt("focal", number)
    digests = {file.name: file_digest(file) for file in files.iterdir()}
    done = {"state": "complete", "metrics": metrics, "epoch": 2, "seconds": 1.5}
    outcome = Outcome(attempt=1, digests=digests, **done)
    ledger.tell("focal", number, outcome, study.objectives)
    return open_study("small", str(study.directory.parent))


def write_answer(study: StudyFolder) -> Named:
    what = named(study, answer(results_of(study)))
    log_answer(study, uri_of(study), what.model, what.trial, what.values)
    return what


def problems(study: StudyFolder) -> list[str]:
    """What an audit says of MLflow."""
    (check,) = (each for each in audit(study, uri_of(study)).checks if each.name == "mlflow")
    return [each.problem for each in check.offenders]


def test_front_knee_and_volume_are_in_mlflow(study: StudyFolder) -> None:
    sync(study, uri_of(study))
    parent, _ = runs_of(study)
    assert tagged(study, "front") == ["focal/0000", "focal/0002"]
    assert parent.data.tags["calstudy.front"] == "focal/0000, focal/0002"
    assert tagged(study, "knee") == [parent.data.tags["calstudy.knee"]]
    # focal's defaults are its first three: the reference is their worst, (0.8, 0.06). By hand:
    # only 0 is better in both.
    assert parent.data.metrics == {
        "front_size": 2.0,
        "hypervolume": pytest.approx((0.9 - 0.8) * (0.06 - 0.05)),
    }
    before = content(study.directory.parent)
    sync(study, uri_of(study))
    assert content(study.directory.parent) == before


def test_a_trial_that_is_beaten_loses_its_tags(study: StudyFolder) -> None:
    sync(study, uri_of(study))
    assert write_answer(study).trial == "focal/0000"
    assert tagged(study, "answer") == ["focal/0000"]
    more = with_another(study, (0.95, 0.005))
    sync(more, uri_of(more))
    write_answer(more)
    parent, _ = runs_of(more)
    for tag in ("front", "knee", "answer"):
        assert tagged(more, tag) == ["focal/0004"] == [parent.data.tags[f"calstudy.{tag}"]]
    assert parent.data.metrics["front_size"] == 1
    assert parent.data.metrics["answer/accuracy"] == 0.95
    before = content(more.directory.parent)
    sync(more, uri_of(more))
    write_answer(more)
    assert content(more.directory.parent) == before
    # Two values of one metric at one step are no fault of the study's own run.
    assert problems(more) == []


def test_the_answer_has_its_objectives_and_nll(study: StudyFolder) -> None:
    sync(study, uri_of(study))
    write_answer(study)
    parent, _ = runs_of(study)
    values = {name: value for name, value in parent.data.metrics.items() if "answer/" in name}
    assert values == {
        "answer/accuracy": 0.9,
        "answer/ece": 0.05,
        f"answer/{'nll' if study.serves == 'raw' else 'ts_nll'}": (
            0.5 if study.serves == "raw" else 0.4
        ),
        **({} if study.serves == "raw" else {"answer/ts_ece": 0.05}),
    }


def test_no_answer_has_no_tag(study: StudyFolder) -> None:
    sync(study, uri_of(study))
    write_answer(study)
    log_answer(study, uri_of(study), "", "", {})
    parent, _ = runs_of(study)
    assert tagged(study, "answer") == []
    assert "calstudy.answer" not in parent.data.tags


def test_children_sort_by_an_objective(study: StudyFolder) -> None:
    sync(study, uri_of(study))
    mlflow.set_tracking_uri(uri_of(study))
    try:
        table = mlflow.search_runs(
            experiment_names=["small"],
            filter_string="tags.`calstudy.state` = 'complete'",
            order_by=['metrics."final/accuracy" DESC'],
        )
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
    assert list(table["tags.mlflow.runName"]) == ["focal/0000", "focal/0001", "focal/0002"]
    assert list(table["metrics.final/accuracy"]) == [0.9, 0.85, 0.8]


def test_only_a_series_has_a_step(study: StudyFolder) -> None:
    """MLflow's pages draw a line of a metric as soon as one run has a step of 1 or more, else a
    bar for each run."""
    sync(study, uri_of(study))
    write_answer(study)
    client = MlflowClient(uri_of(study))
    parent, runs = runs_of(study)
    steps = {}
    for run in (parent, *runs.values()):
        for name in run.data.metrics:
            points = client.get_metric_history(run.info.run_id, name)
            steps[name] = max(steps.get(name, 0), *(point.step for point in points))
    assert {name for name, step in steps.items() if step >= 1} == {"train_loss"}
    assert runs["focal/0000"].data.tags["calstudy.epoch"] == "2"


def test_what_differs_is_named_and_mended(study: StudyFolder) -> None:
    sync(study, uri_of(study))
    write_answer(study)
    assert problems(study) == []
    client = MlflowClient(uri_of(study))
    _, runs = runs_of(study)
    client.delete_tag(runs["focal/0000"].info.run_id, "calstudy.knee")
    for tag in ("front", "answer"):
        client.set_tag(runs["focal/0001"].info.run_id, f"calstudy.{tag}", "yes")
    assert sorted(problems(study)) == [
        "the tag calstudy.answer of focal/0001 is wrong",
        "the tag calstudy.front of focal/0001 is wrong",
        "the tag calstudy.knee of focal/0000 is wrong",
    ]
    sync(study, uri_of(study))
    write_answer(study)
    assert problems(study) == []


def test_what_the_studys_own_run_says_is_audited(study: StudyFolder) -> None:
    sync(study, uri_of(study))
    client = MlflowClient(uri_of(study))
    parent, _ = runs_of(study)
    client.set_tag(parent.info.run_id, "calstudy.front", "focal/0001")
    client.log_metric(parent.info.run_id, "hypervolume", 7.0, step=0)
    tag, metric = problems(study)
    assert tag == "its front is focal/0001 in MLflow, focal/0000, focal/0002 in the ledger"
    assert metric.startswith("its hypervolume is 7.0 in MLflow, 0.00")
    sync(study, uri_of(study))
    assert problems(study) == []


def test_a_study_of_before_such_tags_is_clean(study: StudyFolder) -> None:
    sync(study, uri_of(study))
    client = MlflowClient(uri_of(study))
    parent, runs = runs_of(study)
    for run in (parent, *runs.values()):
        for tag in ("front", "knee", "epoch"):
            if f"calstudy.{tag}" in run.data.tags:
                client.delete_tag(run.info.run_id, f"calstudy.{tag}")
    assert problems(study) == []
    sync(study, uri_of(study))
    assert tagged(study, "front") == ["focal/0000", "focal/0002"]


def test_a_long_front_is_cut_between_names() -> None:
    names = [f"focal/{number:04d}" for number in range(1000)]
    text = listed(names)
    assert len(text) <= LONGEST
    kept, _, rest = text.partition(" and ")
    assert kept.split(", ") == names[: len(kept.split(", "))]
    assert int(rest.split()[0]) == 1000 - len(kept.split(", "))
    assert math.isclose(len(text), LONGEST, abs_tol=20)
