"""Studies that tests only read, each trained once for all of pytest's processes, and copies of
them for tests that change one.

What a study and MLflow record are absolute paths. In a plain copy `run` refuses the study, whose
home is the original, and MLflow's own client writes artifacts into the original; so does calstudy,
where `artifacts` was not copied too. `copy_of` mends both. It does not mend what an export records:
no storage here has a registered model.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from study.store.home import home_of
from study.store.study import record_facts
from tests.shared import made_once
from tests.study.command_line import here, write_spec

# Where MLflow's database has absolute paths.
PLACES = (("experiments", "artifact_location"), ("runs", "artifact_uri"))


def digits() -> Path:
    """A storage with `small`, of small.yaml: cross_entropy and focal, two trials each, two epochs
    each. It is not confirmed."""
    return made_once("digits", _make_digits)


def _make_digits(folder: Path) -> None:
    here("run", write_spec(folder / "small.yaml", trials=2), "--storage", folder)


def copy_of(storage: Path, folder: Path) -> Path:
    """A copy of a storage in a folder, which may be there: its studies are at home in it, and
    their artifacts too."""
    shutil.copytree(storage, folder, dirs_exist_ok=True)
    for file in folder.glob("*/study.yaml"):
        record_facts(file.parent, home=home_of(file.parent))
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        for table, column in PLACES:
            database.execute(
                f"update {table} set {column} = replace({column}, ?, ?)",
                (f"{storage}/", f"{folder}/"),
            )
        database.commit()
    return folder
