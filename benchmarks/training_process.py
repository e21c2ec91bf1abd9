"""A process that trains trials alone or as a stack, by this code or that of another checkout, and
says what it took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Trials = list[dict[str, Any]]  # mappings for `TrialConfig.from_mapping`
# Of trials, and whether they are a stack: metrics, CPU seconds a trial.
Train = Callable[[Trials, bool], dict[str, Any]]


def work() -> None:
    """Train what each line of JSON says, and answer with one; by whichever commit is imported."""
    # An editable install would find here what a former commit does not have.
    sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
    for line in sys.stdin:
        asked, before = json.loads(line), time.process_time()
        with tempfile.TemporaryDirectory(prefix="stacks-") as folder:
            train = train_stacked if asked["stacked"] else train_alone
            found: dict[str, Any] = {"metrics": train(asked["trials"], folder)}
        found["seconds"] = (time.process_time() - before) / len(asked["trials"])
        print(json.dumps(found), flush=True)


def assignments(trials: Trials, folder: str) -> list[Any]:
    """Of trials of equal data, as an engine has them."""
    import torch

    from trainables.config import TrialConfig
    from trainables.loading.trial_data import prepared_for
    from trainables.training.attempt import Assignment

    digest = prepared_for(TrialConfig.from_mapping(trials[0]), torch.device("cpu")).digest
    return [
        Assignment(
            f"row/{place}", f"{folder}/{place}", 1, trial, digest, 30.0, {"cpu": 1, "gpu": 0}
        )
        for place, trial in enumerate(trials)
    ]


def train_alone(trials: Trials, folder: str) -> list[dict[str, float]]:
    from trainables.training.attempt import Attempt

    found = []
    for assignment in assignments(trials, folder):
        attempt = Attempt(assignment)
        while (outcome := attempt.step().outcome) is None:
            pass
        found.append(outcome.metrics)
    return found


def train_stacked(trials: Trials, folder: str) -> list[dict[str, float]]:
    from trainables.training.stacked_attempt import StackedAttempt

    rows = assignments(trials, folder)
    attempt = StackedAttempt(rows)
    found = {}
    while not attempt.is_over:
        reports = attempt.reports()
        found |= {name: one.outcome.metrics for name, one in reports.items() if one.outcome}
    return [found[row.trial] for row in rows]


@contextmanager
def arm(folder: Path, root: Path = ROOT) -> Iterator[Train]:
    """A process that trains by the code of `root`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    environment["CALSTUDY_CACHE"] = str(folder / f"cache-{root.name}")
    command, pipe = [sys.executable, "-W", "ignore", __file__], subprocess.PIPE
    with subprocess.Popen(
        command, cwd=root, env=environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        asks, answers = process.stdin, process.stdout
        assert asks is not None and answers is not None

        def train(trials: Trials, stacked: bool) -> dict[str, Any]:
            print(json.dumps({"trials": trials, "stacked": stacked}), file=asks, flush=True)
            found: dict[str, Any] = json.loads(answers.readline())
            return found

        yield train
        asks.close()


if __name__ == "__main__":
    work()
