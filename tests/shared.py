"""What takes long to make is made once: by the first test that asks for it, for all of
pytest's processes."""

import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from filelock import FileLock
from sqlalchemy import Engine, create_engine

from study.schema.uris import embedded_tracking
from study.tracking.client import open_client

# Of this run of pytest; conftest.py sets it.
FOLDER: list[Path] = []
SILENCES = "silences"  # a line for each command


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name, which `make` has filled. No test may change it: copy it.

    It is filled where it stays: a study and MLflow record absolute paths.
    """
    folder, whole = FOLDER[0] / name, FOLDER[0] / f"{name}.whole"
    with FileLock(FOLDER[0] / f"{name}.lock"):
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            whole.touch()
    return folder


def copied_tables() -> None:
    """From now on, MLflow's tables in a new file of SQLite are copies of such that MLflow has made:
    to make them takes a second. Processes that tests start make their own."""
    utils = sys.modules.get("mlflow.store.db.utils")
    if utils is None or hasattr(utils, "made_by_mlflow"):
        return
    utils.made_by_mlflow = utils._initialize_tables
    utils._initialize_tables = _copy_tables


def _copy_tables(engine: Engine) -> None:
    from mlflow.store.db import utils

    def make(folder: Path) -> None:
        first = create_engine(f"sqlite:///{folder / 'mlflow.db'}")
        utils.made_by_mlflow(first)
        first.dispose()

    if engine.dialect.name != "sqlite" or not FOLDER:
        utils.made_by_mlflow(engine)
        return
    made = made_once("tables", make) / "mlflow.db"
    with closing(sqlite3.connect(made)) as source, engine.connect() as connection:
        source.backup(connection.connection.driver_connection)


def _make_mlflow(folder: Path) -> None:
    open_client(embedded_tracking(folder)).search_experiments(max_results=1)


def with_empty_mlflow(words: Sequence[object]) -> None:
    """Give the new storage of a `run` an empty database of MLflow's: to make one takes a second.

    `calstudy run` makes it in test_run.py, in test_any_user.py and in
    test_working_directory.py.
    """
    if words[0] != "run" or "--storage" not in words or "--tracking" in words:
        return
    spec = Path(str(words[1]))
    if spec.is_file() and re.search(r"^tracking: (?!null)", spec.read_text(), re.MULTILINE):
        return
    storage = Path(str(words[words.index("--storage") + 1]))
    database = storage / "mlflow.db"
    if not FOLDER or database.exists():
        return
    made = made_once("mlflow", _make_mlflow) / "mlflow.db"
    storage.mkdir(parents=True, exist_ok=True)
    shutil.copy(made, database)


def note_silence(seconds: float, after: str) -> None:
    """The longest silence of a command on a pipe, and the line it came after."""
    if FOLDER:
        with (FOLDER[0] / SILENCES).open("a") as file:
            file.write(json.dumps([seconds, after]) + "\n")


def longest_silence(folder: Path) -> str | None:
    """The line on the silences that were noted; None without any."""
    file = folder / SILENCES
    if not file.exists():
        return None
    found = [json.loads(line) for line in file.read_text().splitlines()]
    seconds, after = max(found)
    return (
        f"the longest silence of {len(found)} runs and confirmations on a pipe: {seconds:.1f} s,"
        f" after: {after}"
    )


def folder_of(base: Path) -> Path:
    """The folder that all of pytest's processes share; `base`: of this one."""
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = folder / "shared-by-all"
    folder.mkdir(exist_ok=True)
    return folder
