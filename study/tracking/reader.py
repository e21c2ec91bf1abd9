"""Read a study's runs from MLflow, read-only: creates no experiment, database or table.

MLflow's client returns the points of one metric of one run per request, which dominates the time: a
server gets several requests at once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from study.tracking.client import (
    PREFIX,
    STATUS,
    asking,
    environment,
    open_client,
    open_existing,
    search_runs,
    tables,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

FINAL = "final/"
TESTED = ("test/", "shift/")
CONNECTIONS = 8  # to a server at once
TRIES = 3  # of a failing request, which is safe: it only reads

T = TypeVar("T")


@dataclass(frozen=True)
class Points:
    """The points of one metric of one run: their number, and the number of distinct steps."""

    count: int
    steps: int


@dataclass(frozen=True)
class TrackedRun:
    """A run of a study; `trial` is empty for the study's own run."""

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
        """Whether it is complete: the status is written last."""
        return self.status in STATUS.values()


def read_runs(uri: str, name: str, study_id: str) -> list[TrackedRun]:
    """The study's runs, without deleted ones. Raises TrackingError if they cannot be read."""
    with asking(uri):
        return _read(open_existing(uri), name, study_id)


def reach(uri: str) -> None:
    """Check that a server or database responds, read-only; raises its error if not."""
    if not uri.startswith("http"):
        tables(uri)
        return
    with environment():
        # The API, as in the projection: a health page responds even to clients the API refuses.
        open_client(uri).search_experiments(max_results=1)


def _read(client: MlflowClient, name: str, study_id: str) -> list[TrackedRun]:
    """Runs first: what a driver adds in the meantime is then missing as a whole."""
    experiment = _asked(lambda: client.get_experiment_by_name(name))
    if experiment is None or experiment.lifecycle_stage == "deleted":
        return []
    runs = _asked(lambda: list(search_runs(client, experiment.experiment_id, study_id)))
    wanted = []
    for run in runs:
        wanted += [(run.info.run_id, key) for key in run.data.metrics]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        points = dict(zip(wanted, pool.map(lambda one: _points(client, *one), wanted), strict=True))
    return [
        _tracked(run, {key: points[run.info.run_id, key] for key in run.data.metrics})
        for run in runs
    ]


def _tracked(run: Run, points: dict[str, Points]) -> TrackedRun:
    tags = run.data.tags
    metrics = run.data.metrics
    return TrackedRun(
        run.info.run_id,
        run.info.status,
        {key.removeprefix(PREFIX): value for key, value in tags.items() if key.startswith(PREFIX)},
        {key.removeprefix(FINAL): value for key, value in metrics.items() if key.startswith(FINAL)},
        {key: value for key, value in metrics.items() if key.startswith(TESTED)},
        points,
    )


def _points(client: MlflowClient, run_id: str, key: str) -> Points:
    history = _asked(lambda: client.get_metric_history(run_id, key))
    return Points(len(history), len({point.step for point in history}))


def _asked(question: Callable[[], T]) -> T:
    """The response, retried if lost."""
    for _ in range(TRIES - 1):
        try:
            return question()
        except Exception:  # only the last attempt raises
            continue
    return question()
