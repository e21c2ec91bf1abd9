"""What takes long to make is made once: by the first test that asks for it, for all of
pytest's processes."""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

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
