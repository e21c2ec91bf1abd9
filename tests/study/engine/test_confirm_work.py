"""What `confirm` says that it will train and open, before it does; --dry-run."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest import approx

from study.store.study import open_study
from tests.shared import made_once
from tests.study.command_line import here, here_apart, here_json
from tests.study.engine.test_confirm import make_confirmed
from tests.study.trained import copy_of, digits

Approved = Callable[..., None]


def files(folder: Path) -> dict[str, str]:
    """What is in a folder, but MLflow's own."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.startswith("mlflow.db")
    }


def dry(study: str, storage: Path, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = here_json(
        "confirm", study, "--dry-run", *words, "--storage", storage, "--cpus", 1
    )
    return found


def test_a_dry_run_says_what_follows_and_writes_nothing(tmp_path: Path, approved: Approved) -> None:
    storage = copy_of(digits(), tmp_path / "storage")
    before = files(storage)
    words = ("confirm", "small", "--trial", "focal/0001", "--seeds", 2, "--storage", storage)
    shown = here(*words, "--dry-run", "--cpus", 1)
    found = dry("small", storage, *words[2:6])
    assert files(storage) == before
    approved(shown)
    seconds = {
        record.name: record.seconds for record in open_study("small", str(storage)).records()
    }
    # One training of a candidate as long as the trial's, of a default as the mean of its method's.
    of = {
        label: (seconds[f"{label}/0000"] + seconds[f"{label}/0001"]) / 2
        for label in ("focal", "cross_entropy")
    }
    expected = 2 * (seconds["focal/0001"] + of["focal"] + of["cross_entropy"])
    assert found.pop("seconds") == approx(expected)
    assert found == {
        "candidates": ["focal/0001"],
        "defaults": ["cross_entropy_default", "focal_default"],
        "seeds": 2,
        "trainings": 6,
        "openings": 6,
        "usual": None,
        "ends": "",
        "at_once": 1,
    }


def test_what_was_trained_and_measured_is_not_counted_again(tmp_path: Path) -> None:
    storage = copy_of(made_once("confirmed", make_confirmed), tmp_path)
    before = files(storage)
    found = dry("small", storage)
    assert (found["trainings"], found["openings"], found["at_once"]) == (0, 0, None)
    shown = here("confirm", "small", "--dry-run", "--storage", storage)
    assert shown.splitlines()[0] == (
        "small: (1 candidate + 3 defaults) x 2 seeds = 8 trainings, none left; all are measured on"
        " test"
    )
    more = dry("small", storage, "--seeds", 5)
    assert (more["trainings"], more["openings"]) == (12, 12)
    assert files(storage) == before


def test_a_confirmation_says_it_first(tmp_path: Path) -> None:
    storage = copy_of(made_once("confirmed", make_confirmed), tmp_path)
    said, _ = here_apart("confirm", "small", "--storage", storage)
    assert said.startswith("small: (1 candidate + 3 defaults) x 2 seeds = 8 trainings, none left; ")


def test_a_copy_is_not_moved_by_a_dry_run(tmp_path: Path) -> None:
    said = here("confirm", "small", "--dry-run", "--moved", "--storage", tmp_path, check=2)
    assert "--moved" in said and "--dry-run" in said
