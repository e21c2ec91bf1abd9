"""MLflow's client, opened by URI alone; its exceptions become one line without credentials.

MLflow's default database is a path relative to the working directory, and its fluent functions open
stray runs: here every call names its server and its run.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock

from study.schema.own_code import variables
from study.schema.uris import TrackingError, TrackingUnavailable, public_uri, scrub, sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STATUS = {  # of a trial's run, by the trial's state; there are no others
    "complete": "FINISHED",
    "pruned": "KILLED",
    "failed": "FAILED",
}
PREFIX = "calstudy."  # of our tags
PAGE = 1000  # runs per search request, MLflow's maximum
# Unless the user sets them: requests time out soon and are never retried silently. A retried
# create_run whose first response was lost creates a second run; ours looks for the first.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
# Always set: when a run ends, MLflow prints the server's URL including the password.
SILENCE = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
DRIVERS = {  # of databases, and what to install for them
    "psycopg": '"psycopg[binary]"',
    "psycopg2": "psycopg2-binary",
    "pymysql": "pymysql",
    "MySQLdb": "mysqlclient",
    "mysql": "mysql-connector-python",
    "pyodbc": "pyodbc",
}
LOGGERS = ("mlflow", "alembic", "sqlalchemy", "urllib3")
TRIES = 3  # of a failing request that only reads
ENDS = 3.0  # times its timeout, which is from one byte to the next: how long an answer may take
_servers: set[str] = set()  # whose requests end

T = TypeVar("T")


def open_client(uri: str) -> MlflowClient:
    """A client for the MLflow at the URI; the first import takes seconds, a new database too."""
    from mlflow import MlflowClient

    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    path = sqlite_file(uri)
    if path is not None and not path.exists():
        _create(uri, path)
    if is_server(uri):
        end_requests(uri)
    return MlflowClient(uri, uri)


def end_requests(uri: str) -> None:
    """From now on each request to this server ends: `requests` waits for ever where a byte comes
    now and then. Uploads of files take as long as they take."""
    import requests

    _servers.add(uri)
    known = requests.Session.send
    if hasattr(known, "ends"):
        return

    def send(session: Any, request: Any, **named: Any) -> Any:
        is_ours = any(str(request.url).startswith(each) for each in _servers)
        if not (is_ours and isinstance(request.body, str | bytes | None)):
            return known(session, request, **named)
        seconds = ENDS * float(os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT", "10"))
        try:
            return within(seconds, request.url, lambda: known(session, request, **named))
        except TrackingUnavailable:
            late = f"timed out: no whole answer within {seconds:g} s"
            raise requests.exceptions.Timeout(late) from None

    vars(send)["ends"] = True
    vars(requests)["Session"].send = send


def _create(uri: str, path: Path) -> None:
    """Make an SQLite database, whole or not at all: killed half migrated, it never opens again."""
    from mlflow import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        if path.exists():
            return
        for left in path.parent.glob(f".{path.name}.*.partial"):
            left.unlink()
        # MLflow keeps a connection by name.
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        made = uri.replace(str(path), str(partial), 1)
        MlflowClient(made, made).search_experiments(max_results=1)
        os.replace(partial, path)


def open_existing(uri: str) -> MlflowClient:
    """A client for an existing MLflow. Raises TrackingError if a database lacks its file or tables.

    A client would create both. (It migrates tables of an older MLflow, as every MLflow command
    does.)
    """
    path = sqlite_file(uri)
    if path is not None and not path.is_file():
        raise TrackingError(f"MLflow at {public_uri(uri)}: there is no such database")
    if not is_server(uri) and "experiments" not in tables(uri):
        raise TrackingError(f"MLflow at {public_uri(uri)}: no such table: experiments")
    return open_client(uri)


def tables(uri: str) -> list[str]:
    """The names of a database's tables, read-only."""
    from sqlalchemy import create_engine, inspect

    engine = create_engine(uri)
    try:
        return inspect(engine).get_table_names()
    finally:
        engine.dispose()


def is_server(uri: str) -> bool:
    """Whether an MLflow server answers at the URI; else it is a database."""
    return uri.startswith("http")


def asked(question: Callable[[], T]) -> T:
    """The response to a question that only reads, retried if lost."""
    for _ in range(TRIES - 1):
        try:
            return question()
        except Exception:  # only the last attempt raises
            continue
    return question()


def search_runs(client: MlflowClient, study_id: str, **named: Any) -> Iterator[Run]:
    """The study's runs, in whatever experiment they are, without deleted ones, page by page: an
    experiment may get another name. named: of MLflow's `search_runs`."""
    experiments = [one.experiment_id for one in pages(client.search_experiments)]
    if not experiments:
        return iter(())
    wanted = f"tags.`{PREFIX}id` = '{study_id}'"
    if more := named.pop("filter_string", ""):
        wanted += f" and {more}"
    return pages(client.search_runs, experiments, wanted, **{"max_results": PAGE, **named})


def within(seconds: float, uri: str, act: Callable[[], T]) -> T:
    """The result of `act`, in a thread that is left alone after these seconds: of a server that
    sends a byte now and then, a request never ends. Raises TrackingUnavailable then."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(act())
        except BaseException as error:  # raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, name="within", daemon=True).start()
    wait([done], seconds)
    if not done.done():
        found = f"MLflow at {public_uri(uri)}: it had not answered after {seconds:g} seconds"
        raise TrackingUnavailable(found)
    return done.result()


def pages(search: Callable[..., Any], *words: Any, **named: Any) -> Iterator[Any]:
    """The findings of a search, page by page."""
    token = None
    while True:
        page = search(*words, page_token=token, **named)
        yield from page
        token = page.token
        if not token:
            return


@contextmanager
def environment(**also: str) -> Iterator[None]:
    """Set what MLflow reads from the environment at each request, where the user has not."""
    settings = {**ENVIRONMENT, **also}
    ours = {name: value for name, value in settings.items() if name not in os.environ} | SILENCE
    with variables(ours):
        yield


@contextmanager
def asking(uri: str, **also: str) -> Iterator[None]:
    """MLflow's `environment`; what a server, a driver or a network raises is a TrackingError."""
    with environment(**also):
        try:
            yield
        except TrackingError:
            raise
        except Exception as error:
            raise trouble(error, uri) from None


# The server is away, stopped, restarted or out of resources; no wrong address and no wrong key.
AWAY = re.compile(
    r"refused|timed? ?out|reset by peer|closed the connection|unreachable|database is locked|too"
    r" many 5\d\d error"
    r"|Remote end closed|Connection aborted|server closed|starting up|shutting down",
    re.IGNORECASE,
)


def trouble(error: BaseException, uri: str) -> TrackingError:
    """An MLflow exception as an error of ours: TrackingUnavailable if another try may succeed."""
    said = what_happened(error, uri)
    if AWAY.search(str(error)) and s3_problem(error) is None and driver_problem(error) is None:
        return TrackingUnavailable(said)
    return TrackingError(said)


def what_happened(error: BaseException, uri: str) -> str:
    """An MLflow exception on one line, preferably the system's own error message."""
    text = s3_problem(error) or driver_problem(error) or _own_words(error, uri)
    return f"MLflow at {public_uri(uri)}: {text}"


def _own_words(error: BaseException, uri: str) -> str:
    text = " ".join(scrub(str(error), uri).split()) or type(error).__name__
    if cause := re.search(r"\[Errno -?\d+\] ([^'\"()]+)", text):
        return cause[1].strip()
    if late := re.search(r"timed out: no whole answer within [\d.]+ s", text):
        return late[0]
    # Requests that are retried, or could be.
    if failed := re.search(r"too many (\d+) error responses", text):
        return f"the server answers {failed[1]}; its log says why"
    return text[:300]


def driver_problem(error: BaseException) -> str | None:
    """The database's driver that is not installed, with the fix; None for other errors."""
    if not isinstance(error, ModuleNotFoundError) or error.name not in DRIVERS:
        return None
    package = DRIVERS[error.name]
    return f"the database's driver, {error.name}, is not installed. Run: pip install {package}"


def s3_problem(error: BaseException) -> str | None:
    """The trouble with artifacts on S3, with the fix; None for other errors. (boto3 is optional:
    its errors go by name.)"""
    if isinstance(error, ImportError) and error.name in ("boto3", "botocore"):
        return (
            'its artifacts are on S3, and boto3 is not installed. Run: pip install "calstudy[s3]"'
        )
    if type(error).__module__.partition(".")[0] not in ("boto3", "botocore", "s3transfer"):
        return None
    text = " ".join(str(error).split())
    if "Credential" in type(error).__name__:
        fix = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials."
        return f"its artifacts are on S3, and there are no keys for it ({text}). {fix}"
    if endpoint := re.search(r'endpoint URL: "(\w+://[^/"]+)', text):
        return f"S3 at {endpoint[1]} does not answer. Fix MLFLOW_S3_ENDPOINT_URL, or the way to it."
    if refused := re.search(
        r"An error occurred \((\w+)\) when calling the (\w+) operation[^:]*: (.*)", text
    ):
        code, operation, said = refused.groups()
        target = re.search(r"Failed to upload .* to (\S+): An error", text)
        bucket = f" in the bucket {target[1].partition('/')[0]}" if target else ""
        fixes = {"NoSuchBucket": "Create it, or fix the server's artifact root."}
        fix = fixes.get(code, "Check the keys, and what they may do.")
        return f"S3 refuses {operation}{bucket} ({code}: {said.rstrip('.')}). {fix}"
    return f"S3: {text[:300]}"
