"""MLflow's tracking store: opened by its URI alone, and what it raises said on one line, without credentials.

MLflow's own default for a database is a path relative to wherever one stands, and its fluent functions open stray runs:
here every call names its store and its run.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from study.schema.uris import public_uri, scrub

STATUS = {  # of a trial's run, by the trial's state; there are no others
    "complete": "FINISHED",
    "pruned": "KILLED",
    "failed": "FAILED",
}
PAGE = 1000  # runs of one search; MLflow gives no more
# Where the user has not said otherwise: an attempt ends soon, and is never repeated behind our back. A repeated
# create_run whose first answer was lost makes a second run; ours looks for the first.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
LOGGERS = ("mlflow", "alembic", "sqlalchemy", "urllib3")


def open_store(uri: str, artifacts: Path) -> Any:
    """MLflow's store at the URI; the first import takes seconds, a new database too.

    The store and not the client above it: ending a run, the client prints the server's URL, password and all.
    """
    import mlflow  # noqa: F401 - it sets up its loggers
    from mlflow.tracking._tracking_service.utils import _get_store

    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return _get_store(uri, str(artifacts))  # type: ignore[no-untyped-call]


@contextmanager
def environment() -> Iterator[None]:
    """MLflow reads its settings from the environment at each request."""
    lacking = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(lacking)
    try:
        yield
    finally:
        for name in lacking:
            os.environ.pop(name, None)


def what_happened(error: BaseException, uri: str) -> str:
    """An exception of MLflow on one line, the system's own words first."""
    text = " ".join(scrub(str(error), uri).split()) or type(error).__name__
    cause = re.search(r"\[Errno -?\d+\] ([^'\"()]+)", text)
    return f"MLflow at {public_uri(uri)}: {cause.group(1).strip() if cause else text[:300]}"
