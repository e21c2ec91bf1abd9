"""Many trials on a real MLflow server: an audit asks little, and finds what is other."""

import math
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from optuna.distributions import FloatDistribution

from study.audit.audit import audit
from study.audit.result import AuditReport, Check
from study.schema.uris import embedded_tracking
from study.store.study import StudyFolder
from study.tracking import client, histories, reader
from study.tracking.histories import drawn
from study.tracking.projection import sync
from tests.study.made import Trial, made_study
from tests.study.tracking.line import Line

pytestmark = [pytest.mark.slow, pytest.mark.platform]

LABELS = ("focal", "label_smoothing")
# Of each, and of those whose histories are read. With a page and a sample as they are, as many
# questions are asked of five times the trials.
TRIALS, SAMPLE = 100, 80
MEASURED = ("train_loss", "accuracy", "nll", "brier", "ece")
FINAL = ("accuracy", "error", "nll", "brier", "ece", "ts_ece", "ts_nll", "mce")
SPACE = {"optimizer.lr": FloatDistribution(0.01, 0.5)}


def trial(draw: random.Random) -> Trial:
    rows = [
        {"epoch": epoch, "time": 1.7e9 + epoch, "seconds": 1.0}
        | {name: draw.random() for name in MEASURED}
        for epoch in (1, 2)
    ]
    return {name: draw.random() for name in FINAL}, rows


@pytest.fixture(autouse=True)
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    assert histories.RUNS_A_REQUEST < SAMPLE
    monkeypatch.setattr(client, "PAGE", len(LABELS) * TRIALS)
    monkeypatch.setattr(reader, "SAMPLE", SAMPLE)


@pytest.fixture(scope="module")
def many(mlflow_server: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """Written into the server's database, which takes a tenth of the time of asking the server."""
    draw = random.Random(0)
    trials = {label: [trial(draw) for _ in range(TRIALS)] for label in LABELS}
    study = made_study(tmp_path_factory.mktemp("many"), "many", trials, SPACE)
    assert sync(study, embedded_tracking(mlflow_server[0])).written == len(LABELS) * TRIALS
    return study


@pytest.fixture
def changed(mlflow_server: tuple[Path, int], many: StudyFolder) -> Iterator[sqlite3.Connection]:
    """The server's database, and at the end as it was."""
    file = mlflow_server[0] / "mlflow.db"
    with (
        closing(sqlite3.connect(file, timeout=60)) as database,
        closing(sqlite3.connect(":memory:")) as saved,
    ):
        database.backup(saved)
        yield database
        database.rollback()
        saved.backup(database)


def check(report: AuditReport, name: str) -> Check:
    (found,) = (check for check in report.checks if check.name == name)
    return found


def problems(report: AuditReport) -> dict[str, str]:
    """What is said of each trial's run."""
    offenders = check(report, "mlflow").offenders
    assert len({each.name for each in offenders}) == len(offenders)
    return {each.name: each.problem for each in offenders}


def names() -> list[str]:
    return [f"{label}/{number:04d}" for label in LABELS for number in range(TRIALS)]


def of(name: str) -> str:
    """The run of a trial; the server has those of other tests too."""
    ours = "select run_uuid from tags where key = 'calstudy.study' and value = 'many'"
    is_it = f"key = 'calstudy.trial' and value = '{name}' and run_uuid in ({ours})"
    return f"(select run_uuid from tags where {is_it})"


def test_many_trials_take_few_requests(many: StudyFolder, line: Line) -> None:
    report = audit(many, line.uri)
    assert problems(report) == {}
    assert check(report, "mlflow").counted == 200
    assert len(line.asked) <= 60
    searches = [path for path in line.asked if path.endswith("/runs/search")]
    assert len(searches) == 2  # pages: the trials' runs, and the study's own
    assert report.sample is not None
    assert (report.sample.runs, len(report.sample.trials)) == (200, 80)
    (note,) = check(report, "mlflow").notes
    assert note.startswith("histories in MLflow of 80 of 200 trials, drawn with the seed ")
    assert audit(many, line.uri).sample == report.sample


def test_each_difference_is_found(
    many: StudyFolder, line: Line, mlflow_server: tuple[Path, int], changed: sqlite3.Connection
) -> None:
    sample = drawn(names(), many.id, SAMPLE)
    others = iter(name for name in names() if name not in sample)
    param, tag, gone_tag, last, final, missing, twice, unseen = (next(others) for _ in range(8))
    seen = min(sample)
    put = "insert into {0} ({1}, run_uuid) select {1}, 'twin' from {0} where run_uuid = {2}"
    point = "key, value, timestamp, step, is_nan"
    columns = {"metrics": point, "latest_metrics": point, "tags": "key, value"}
    run = "name, experiment_id, status, lifecycle_stage, start_time, artifact_uri, user_id"
    again = "insert into metrics select key, value, timestamp + 1, run_uuid, step, is_nan from"
    for statement in (
        f"update params set value = '0.5' where key = 'optimizer.lr' and run_uuid = {of(param)}",
        f"update tags set value = 'd2' where key = 'calstudy.data_digest' and run_uuid = {of(tag)}",
        f"delete from tags where key = 'calstudy.attempt' and run_uuid = {of(gone_tag)}",
        f"update latest_metrics set value = 9.5 where key = 'nll' and run_uuid = {of(last)}",
        f"update latest_metrics set value = 9.5 where key = 'final/nll' and run_uuid = {of(final)}",
        f"update runs set lifecycle_stage = 'deleted' where run_uuid = {of(missing)}",
        put.format("runs", run, of(twice)),
        *(put.format(table, keys, of(twice)) for table, keys in columns.items()),
        *(
            f"{again} metrics where key = 'nll' and step = 1 and run_uuid = {of(name)}"
            for name in (seen, unseen)
        ),
    ):
        assert changed.execute(statement).rowcount >= 1, statement
    changed.commit()
    words = {
        param: "its param optimizer.lr is 0.5 in MLflow, 0.",
        tag: "its data_digest is d2 in MLflow, d1635 in the ledger",
        gone_tag: "its attempt is None in MLflow, 1 in the ledger",
        last: "its last nll is 9.5 in MLflow, 0.",
        final: "its final nll is 9.5 in MLflow, 0.",
        missing: "is not in MLflow",
        twice: "has 2 runs in MLflow",
        seen: "MLflow has duplicate steps of nll",
    }
    found = problems(audit(many, line.uri))
    assert found.keys() == words.keys()
    assert all(found[name].startswith(text) for name, text in words.items()), found
    whole = audit(many, line.uri, histories=math.inf)
    assert whole.sample is None
    assert problems(whole).keys() == {*words, unseen}
    assert problems(audit(many, embedded_tracking(mlflow_server[0]))) == problems(whole)
