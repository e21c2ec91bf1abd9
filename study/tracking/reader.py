"""What MLflow holds of a study, read and nothing else: looking makes no experiment, no database and no table.

A database is asked in four questions, whatever the number of trials; a server in pages of runs, and for their points in
groups of runs.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from study.schema.uris import TrackingError, public_uri, sqlite_file
from study.tracking.store import PAGE, STATUS, environment, open_store, what_happened

PREFIX, FINAL = "calstudy.", "final/"
TESTED = ("test/", "shift/")
MOST_RUNS, MOST_POINTS = 100, 25_000  # of one answer to the question for points; a server cuts off the rest unsaid
CONNECTIONS = 4  # to a server at once
TRIES = 3  # of a question that fails: it changes nothing
LOCKED_SECONDS = 20.0  # while a driver writes an SQLite file, its readers wait

T = TypeVar("T")


@dataclass(frozen=True)
class Points:
    """The points of one metric of one run: how many, and at how many different steps."""

    count: int
    steps: int


@dataclass(frozen=True)
class TrackedRun:
    """A run of a study; `trial` is empty for the study's own."""

    run_id: str
    status: str
    tags: dict[str, str] = field(default_factory=dict)  # calstudy.*, without the prefix
    final: dict[str, float] = field(default_factory=dict)  # final/*, without the prefix
    tested: dict[str, float] = field(default_factory=dict)  # test/*, shift/*
    points: dict[str, Points] = field(default_factory=dict)

    @property
    def trial(self) -> str:
        return self.tags.get("trial", "")

    @property
    def ended(self) -> bool:
        """Whether it is whole: the status is written last."""
        return self.status in STATUS.values()


def read_runs(uri: str, name: str, study_id: str) -> list[TrackedRun]:
    """The runs of the study that are not deleted. Raises TrackingError where they cannot be read."""
    with environment():
        try:
            read = _from_server if uri.startswith("http") else _from_tables
            return list(read(uri, name, study_id))
        except TrackingError:
            raise
        except Exception as error:  # whatever a server, a driver or a network has to say
            raise TrackingError(what_happened(error, uri)) from None


# ---- a database ----------------------------------------------------------------------------------------------------


def _from_tables(uri: str, name: str, study_id: str) -> Iterator[TrackedRun]:
    """Four questions to the tables as MLflow names them. Importing its own description of them would take seconds."""
    from sqlalchemy import column, distinct, func, or_, select, table

    run = table("runs", *map(column, ("run_uuid", "experiment_id", "status", "lifecycle_stage")))
    experiment = table("experiments", *map(column, ("experiment_id", "name", "lifecycle_stage")))
    tag, latest = (table(of, *map(column, ("run_uuid", "key", "value"))) for of in ("tags", "latest_metrics"))
    metric = table("metrics", *map(column, ("run_uuid", "key", "step")))
    ours = (
        select(tag.c.run_uuid)
        .join_from(tag, run, run.c.run_uuid == tag.c.run_uuid)
        .join(experiment, experiment.c.experiment_id == run.c.experiment_id)
        .where(tag.c.key == f"{PREFIX}id", tag.c.value == study_id, experiment.c.name == name)
        .where(run.c.lifecycle_stage == "active", experiment.c.lifecycle_stage == "active")
    )
    # The runs come first: what a driver adds in the meantime is then unknown as a whole.
    questions = (
        select(run.c.run_uuid, run.c.status).where(run.c.run_uuid.in_(ours)),
        select(tag).where(tag.c.run_uuid.in_(ours), tag.c.key.like(f"{PREFIX}%")),
        select(latest).where(
            latest.c.run_uuid.in_(ours), or_(*(latest.c.key.like(f"{kind}%") for kind in (FINAL, *TESTED)))
        ),
        select(metric.c.run_uuid, metric.c.key, func.count(), func.count(distinct(metric.c.step)))
        .where(metric.c.run_uuid.in_(ours))
        .group_by(metric.c.run_uuid, metric.c.key),
    )
    engine = _engine(uri)
    with engine.connect() as connection:
        statuses, tags, finals, points = (connection.execute(question).all() for question in questions)
    engine.dispose()
    found = {run_id: TrackedRun(run_id, status) for run_id, status in statuses}
    for run_id, key, value in tags:
        if run_id in found:
            found[run_id].tags[key.removeprefix(PREFIX)] = value
    for run_id, key, value in finals:
        if run_id in found and key.startswith(TESTED):
            found[run_id].tested[key] = value
        elif run_id in found:
            found[run_id].final[key.removeprefix(FINAL)] = value
    for run_id, key, *counts in points:
        if run_id in found:
            found[run_id].points[key] = Points(*counts)
    yield from (run for run in found.values() if run.tags)  # the others have been deleted in the meantime


def _engine(uri: str) -> Any:
    """A way into the database that changes nothing; of SQLite not even a file that is missing is made."""
    from sqlalchemy import create_engine

    path = sqlite_file(uri)
    if path is None:
        return create_engine(uri)
    if not path.is_file():
        raise TrackingError(f"MLflow at {public_uri(uri)}: there is no such database.")

    def connect() -> sqlite3.Connection:
        # Not mode=ro: after a kill inside a commit, the first reader has to roll back what was half written.
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw", uri=True, timeout=LOCKED_SECONDS, check_same_thread=False
        )
        connection.execute("pragma query_only = on")
        return connection

    return create_engine("sqlite://", creator=connect)


# ---- a server ------------------------------------------------------------------------------------------------------


def _from_server(uri: str, name: str, study_id: str) -> Iterator[TrackedRun]:
    from mlflow.entities import LifecycleStage

    store = open_store(uri, Path())
    experiment = _asked(lambda: store.get_experiment_by_name(name))
    if experiment is None or experiment.lifecycle_stage == LifecycleStage.DELETED:
        return
    runs = list(_pages(store, experiment.experiment_id, study_id))
    with_key: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for key in run.data.metrics:
            with_key[key].append(run.info.run_id)
    steps: dict[tuple[str, str], list[int]] = defaultdict(list)
    groups = [(key, ids[at : at + MOST_RUNS]) for key, ids in with_key.items() for at in range(0, len(ids), MOST_RUNS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for (key, _), found in zip(groups, pool.map(lambda group: _steps(store, *group), groups), strict=True):
            for run_id, step in found:
                steps[run_id, key].append(step)
    for run in runs:
        data, run_id = run.data, run.info.run_id
        tags = {key.removeprefix(PREFIX): value for key, value in data.tags.items() if key.startswith(PREFIX)}
        final = {key.removeprefix(FINAL): value for key, value in data.metrics.items() if key.startswith(FINAL)}
        tested = {key: value for key, value in data.metrics.items() if key.startswith(TESTED)}
        points = {key: Points(len(steps[run_id, key]), len(set(steps[run_id, key]))) for key in data.metrics}
        yield TrackedRun(run_id, run.info.status, tags, final, tested, points)


def _pages(store: Any, experiment_id: str, study_id: str) -> Iterator[Any]:
    from mlflow.entities import ViewType

    wanted, token = f"tags.`{PREFIX}id` = '{study_id}'", None
    while True:
        ask = partial(store.search_runs, [experiment_id], wanted, ViewType.ACTIVE_ONLY, PAGE, None, token)
        page = _asked(ask)
        yield from page
        token = page.token
        if not token:
            return


def _steps(store: Any, key: str, run_ids: list[str]) -> list[tuple[str, int]]:
    """(run, step) of every point of the metric in these runs."""
    from mlflow.utils import rest_utils

    endpoint = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
    wanted = {"run_id": run_ids, "metric_key": key, "max_results": MOST_POINTS}

    def ask() -> list[dict[str, Any]]:
        server: Any = rest_utils
        answer = server.http_request_safe(store.get_host_creds(), endpoint, "GET", params=wanted)
        found: list[dict[str, Any]] = answer.json()["metrics"]
        return found

    found = _asked(ask)
    if len(found) < MOST_POINTS:
        return [(point["run_id"], point["step"]) for point in found]
    if len(run_ids) == 1:
        return [(run_ids[0], point.step) for point in _asked(lambda: store.get_metric_history(run_ids[0], key))]
    half = len(run_ids) // 2
    return _steps(store, key, run_ids[:half]) + _steps(store, key, run_ids[half:])


def _asked(question: Callable[[], T]) -> T:
    """The answer, asked for again where one is lost on the way."""
    for _ in range(TRIES - 1):
        try:
            return question()
        except Exception:  # the last one is told
            continue
    return question()
