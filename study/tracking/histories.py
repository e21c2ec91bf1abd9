"""The points of runs' metrics, counted, read-only.

A database counts them itself. MLflow's client asks a server for one metric of one run a request;
the server's own pages ask for one metric of many runs, and so do we where it has that.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from study.tracking.client import asked, is_server

if TYPE_CHECKING:
    from mlflow import MlflowClient

SAMPLE = 200  # trials whose histories are read from a server unless more are asked for
CONNECTIONS = 8  # to a server at once
RUNS_A_QUERY = 500  # of a database
MANY = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
RUNS_A_REQUEST = 75  # of a server: gunicorn takes an address of 4,094 characters
MOST_POINTS = 25_000  # in an answer; the rest is left out unsaid
ABSENT = (404, 405, 501)  # a server without such a page

Metrics = Mapping[str, Sequence[str]]  # the names of its metrics, by run


@dataclass(frozen=True)
class Points:
    """The points of one metric of one run: their number, and the number of distinct steps."""

    count: int
    steps: int


NONE = Points(0, 0)


def sample_seed(study_id: str) -> int:
    """The seed that draws the sample, the same for the same study."""
    return int(hashlib.sha256(study_id.encode()).hexdigest()[:8], 16)


def drawn(trials: Iterable[str], study_id: str, count: float) -> set[str]:
    """So many of the trials, or all if there are no more. One more or less changes at most one."""
    seed = sample_seed(study_id)
    names = sorted(set(trials), key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    return set(names[: int(min(count, len(names)))])


def read_points(client: MlflowClient, uri: str, metrics: Metrics) -> dict[str, dict[str, Points]]:
    """The points of each metric of these runs, by run."""
    by_server = is_server(uri)
    found = _of_server(client, uri, metrics) if by_server else _of_database(uri, metrics)
    return {
        run: {key: found.get((run, key), NONE) for key in keys} for run, keys in metrics.items()
    }


def _of_database(uri: str, metrics: Metrics) -> dict[tuple[str, str], Points]:
    from sqlalchemy import column, create_engine, distinct, func, select, table

    run: Any = column("run_uuid")
    key: Any = column("key")
    step: Any = column("step")
    question = select(run, key, func.count(), func.count(distinct(step))).select_from(
        table("metrics", run, key, step)
    )
    engine = create_engine(uri)
    try:
        found = {}
        with engine.connect() as connection:
            for some in _parts(list(metrics), RUNS_A_QUERY):
                rows = connection.execute(question.where(run.in_(some)).group_by(run, key))
                found.update({(name, of): Points(count, steps) for name, of, count, steps in rows})
        return found
    finally:
        engine.dispose()


def _of_server(client: MlflowClient, uri: str, metrics: Metrics) -> dict[tuple[str, str], Points]:
    runs_with: dict[str, list[str]] = defaultdict(list)
    for run, keys in metrics.items():
        for key in keys:
            runs_with[key].append(run)
    questions = [
        (key, some) for key, runs in runs_with.items() for some in _parts(runs, RUNS_A_REQUEST)
    ]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        answers = list(pool.map(lambda each: _of_metric(client, uri, *each), questions))
    found: dict[tuple[str, str], Points] = {}
    for (key, _), answer in zip(questions, answers, strict=True):
        found.update({(run, key): points for run, points in answer.items()})
    return found


def _of_metric(client: MlflowClient, uri: str, key: str, runs: Sequence[str]) -> dict[str, Points]:
    """The points of one metric, by run."""
    steps = asked(lambda: _steps(uri, key, runs))
    if steps is None or (len(steps) >= MOST_POINTS and len(runs) == 1):
        return {run: _counted(_of_run(client, run, key)) for run in runs}
    if len(steps) >= MOST_POINTS:  # perhaps not all
        middle = len(runs) // 2
        first = _of_metric(client, uri, key, runs[:middle])
        return first | _of_metric(client, uri, key, runs[middle:])
    by_run: dict[str, list[int]] = defaultdict(list)
    for run, step in steps:
        by_run[run].append(step)
    return {run: _counted(of_run) for run, of_run in by_run.items()}


def _steps(uri: str, key: str, runs: Sequence[str]) -> list[tuple[str, int]] | None:
    """(run, step) of each point of a metric; None if the server has no such page."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request, verify_rest_response

    wanted = [("metric_key", key), *(("run_id", run) for run in runs)]
    server = get_default_host_creds(uri)  # type: ignore[no-untyped-call]
    answer = http_request(server, MANY, "GET", params=wanted)  # type: ignore[no-untyped-call]
    if answer.status_code in ABSENT:
        return None
    verify_rest_response(answer, MANY)
    try:
        points = answer.json()["metrics"]
    except (ValueError, KeyError, TypeError):  # a page for people
        return None
    return [(point["run_id"], int(point["step"])) for point in points]


def _of_run(client: MlflowClient, run: str, key: str) -> list[int]:
    return [point.step for point in asked(lambda: client.get_metric_history(run, key))]


def _counted(steps: Sequence[int]) -> Points:
    return Points(len(steps), len(set(steps)))


def _parts(runs: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(runs), size):
        yield runs[start : start + size]
