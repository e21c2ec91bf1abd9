"""Read a study's runs from MLflow, read-only: creates no experiment, database or table.

A search returns a thousand runs with their params, tags and last values; the points of their
metrics are many more, so that from a server those of a sample are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from study.tracking.client import (
    PREFIX,
    STATUS,
    asked,
    asking,
    environment,
    is_server,
    open_client,
    open_existing,
    search_runs,
    tables,
)
from study.tracking.histories import SAMPLE, Points, drawn, read_points

if TYPE_CHECKING:
    from mlflow.entities import Run

FINAL = "final/"
TESTED = ("test/", "shift/")
COST = "cost/"
# A page of a thousand runs takes a busy server longer than other answers.
PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "60"}


@dataclass(frozen=True)
class TrackedRun:
    """A run of a study; `trial` is empty for the study's own run.

    points: of each metric; None if they were not read.
    """

    run_id: str
    status: str
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)  # calstudy.*, without the prefix
    final: dict[str, float] = field(default_factory=dict)  # final/*, without the prefix
    tested: dict[str, float] = field(default_factory=dict)  # test/*, shift/*
    last: dict[str, float] = field(default_factory=dict)  # the last value of what an epoch measured
    points: dict[str, Points] | None = None

    @property
    def trial(self) -> str:
        return self.tags.get("trial", "")

    @property
    def ended(self) -> bool:
        """Whether it is complete: the status is written last."""
        return self.status in STATUS.values()


def read_runs(uri: str, study_id: str, histories: float | None = None) -> list[TrackedRun]:
    """The study's runs, without deleted ones. Raises TrackingError if they cannot be read.

    histories: of how many trials the points are read (math.inf: of each); default: of a sample from
    a server, of each from a database. Runs come first: what a driver adds in the meantime is then
    missing as a whole.
    """
    with asking(uri):
        client = open_existing(uri)
    if histories is None:
        histories = SAMPLE if is_server(uri) else math.inf
    with asking(uri, **PATIENCE):
        runs = asked(lambda: list(search_runs(client, study_id)))
        chosen = drawn(filter(None, map(_trial, runs)), study_id, histories)
        wanted = {run.info.run_id: list(run.data.metrics) for run in runs if _trial(run) in chosen}
        points = read_points(client, uri, wanted)
    return [_tracked(run, points.get(run.info.run_id)) for run in runs]


def reach(uri: str) -> None:
    """Check that a server or database responds, read-only; raises its error if not."""
    if not is_server(uri):
        tables(uri)
        return
    with environment():
        # The API, as in the projection: a health page responds even to clients the API refuses.
        open_client(uri).search_experiments(max_results=1)


def _trial(run: Run) -> str:
    return str(run.data.tags.get(f"{PREFIX}trial", ""))


def _tracked(run: Run, points: dict[str, Points] | None) -> TrackedRun:
    tags = run.data.tags
    metrics = run.data.metrics
    others = (FINAL, COST, *TESTED)
    return TrackedRun(
        run.info.run_id,
        run.info.status,
        dict(run.data.params),
        {key.removeprefix(PREFIX): value for key, value in tags.items() if key.startswith(PREFIX)},
        {key.removeprefix(FINAL): value for key, value in metrics.items() if key.startswith(FINAL)},
        {key: value for key, value in metrics.items() if key.startswith(TESTED)},
        {key: value for key, value in metrics.items() if not key.startswith(others)},
        points,
    )
