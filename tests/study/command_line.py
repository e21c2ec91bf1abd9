"""Running calstudy: as its user does, in a process of its own, or in this one."""

import io
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest import mock

import pytest
import yaml

from benchmarks.chaos.processes import ACTOR, MARK, marked
from study.cli import main
from study.engine import run
from study.engine.search import LedgerSearch
from study.registry import verification, verify
from study.terminal import steps
from tests.patience import patient, wait_until
from tests.shared import note_silence, with_empty_mlflow
from tests.study.made import Places
from trainables.training.trainable import CalibrationTrainable

ENVIRONMENT = {**os.environ, "COLUMNS": "120", "PYTHONWARNINGS": "ignore", MARK: uuid.uuid4().hex}


def calstudy(*words: object, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `check` is the exit code it must have."""
    if check == 0:
        with_empty_mlflow(words)
    command = [sys.executable, "-m", "study.cli", *map(str, words)]
    environment = {**os.environ, **ENVIRONMENT}
    if words[0] in ("run", "confirm"):
        done = heard(command, environment)
    else:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=patient(280)
        )
    assert check is None or done.returncode == check, (
        f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done


def heard(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, on a pipe, and note its longest silence."""
    shown: dict[int, list[str]] = {1: [], 2: []}
    times = [(time.monotonic(), "the start")]

    def read(number: int, pipe: IO[str]) -> None:
        for line in pipe:
            shown[number].append(line)
            times.append((time.monotonic(), line.strip()))

    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None and process.stderr is not None
    readers = [
        threading.Thread(target=read, args=pair)
        for pair in ((1, process.stdout), (2, process.stderr))
    ]
    for reader in readers:
        reader.start()
    try:
        process.wait(patient(280))
    finally:
        process.kill()
        for reader in readers:
            reader.join()
    times.append((time.monotonic(), "the end"))
    silences = [(after - before, line) for (before, line), (after, _) in pairwise(times)]
    note_silence(*max(silences))
    return subprocess.CompletedProcess(
        command, process.returncode, "".join(shown[1]), "".join(shown[2])
    )


def calstudy_json(*words: object) -> Any:
    return json.loads(calstudy(*words, "--json").stdout)


def here(*words: object, check: int | None = 0) -> str:
    """Run a command in this process and without Ray, one trial after another: a second
    instead of half a minute.

    For tests in which no process dies, and no code is imported from a study's own
    folder. What it printed. `check` is the exit code it must have; None: any.
    """
    return "".join(_here(words, check))


def here_apart(*words: object) -> tuple[str, str]:
    """What it printed, and what it said on standard error."""
    return _here(words, 0)


def here_json(*words: object) -> Any:
    return json.loads(_here((*words, "--json"), 0)[0])


def _here(words: Sequence[object], check: int | None) -> tuple[str, str]:
    wait_for_tracking()
    if check == 0:
        with_empty_mlflow(words)
    shown, said = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(shown), redirect_stderr(said):
        patch.setattr(run, "_tune", trained_here)
        patch.setattr(steps, "SAID_AFTER", 3600.0)  # what is printed does not depend on the time
        if check == 0:
            patch.setattr(run, "TRACKING_PATIENCE", 240.0)  # the machine may be busy
        patch.setattr(verification, "subprocess", SimpleNamespace(run=verified_here))
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
    assert check is None or ended.value.code == check, shown.getvalue() + said.getvalue()
    return shown.getvalue(), said.getvalue()


def interrupted_here(spec: Path, storage: Path) -> None:
    """Run a spec in this process, and stop in the second of its trials, as by Ctrl-C."""
    step = CalibrationTrainable.step
    steps = iter(range(2))

    def stopped(trainable: CalibrationTrainable) -> object:
        if next(steps) == 1:
            raise KeyboardInterrupt
        return step(trainable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CalibrationTrainable, "step", stopped)
        here("run", spec, "--storage", storage, check=1)


def wait_for_tracking() -> None:
    """What a run in this process gave up writing to MLflow must not write on beside the next."""
    for thread in threading.enumerate():
        if thread.name == "mlflow":
            thread.join(240)


def trained_here(study: Any, ledger: Any, listeners: list[Any], *engine: Any) -> None:
    """What Ray Tune does with the search and its trials."""
    search = LedgerSearch(study, ledger, listeners, Places(1))
    while isinstance(config := search.suggest("one"), dict):
        # Tune's own set-up wants a storage.
        actor = CalibrationTrainable.__new__(CalibrationTrainable)
        actor.reset_config(config)
        search.attempt_started("one")
        while (
            not (result := actor.step())["done"]
            and search.goes_on("one", result["reports"])
            and search.fault is None
        ):
            search.on_trial_result("one", result)
        if search.fault is None:
            search.on_trial_complete("one", result)
        if search.fault is not None:
            raise search.fault
    if search.fault is not None:
        raise search.fault


def verified_here(
    command: list[str], env: dict[str, str], **options: object
) -> subprocess.CompletedProcess[str]:
    """What the process does that `verify` starts; a fresh one takes ten seconds
    to import what this one has."""
    shown = io.StringIO()
    with (
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch("sys.argv", command[3:]),
        redirect_stdout(shown),
    ):
        verify.main()
    return subprocess.CompletedProcess(command, 0, shown.getvalue(), "")


def start(*words: object) -> subprocess.Popen[str]:
    """Start a command and leave it running."""
    with_empty_mlflow(words)
    command = [sys.executable, "-m", "study.cli", *map(str, words)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )


def kill(driver: subprocess.Popen[str]) -> None:
    """SIGKILL, and wait until its workers have ended too: a run in this process starts
    at once, beside them."""
    driver.kill()
    driver.wait()
    wait_until(lambda: not marked(ENVIRONMENT[MARK], ACTOR))


def write_spec(path: Path, **keys: Any) -> Path:
    """A small study of the digits; `keys` over it."""
    plain = {
        "name": "small",
        "data": "digits",
        "model": "mlp",
        "methods": ["cross_entropy", "focal"],
        "search_space": {"optimizer.lr": {"low": 0.01, "high": 0.5, "log": True}},
        "trials": 3,
        "epochs": 2,
        **keys,
    }
    path.write_text(yaml.safe_dump(plain))
    return path
