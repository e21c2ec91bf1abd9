"""Running calstudy: as its user does, in a process of its own, or in this one."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from study.cli import main

ENVIRONMENT = {**os.environ, "COLUMNS": "120", "PYTHONWARNINGS": "ignore"}


def calstudy(*words: object, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `check` is the exit code it must have."""
    command = [sys.executable, "-m", "study.cli", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=280)
    assert check is None or done.returncode == check, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def calstudy_json(*words: object) -> Any:
    return json.loads(calstudy(*words, "--json").stdout)


def here(*words: object, check: int = 0) -> str:
    """Run a command in this process, which has imported everything: a second of CPU instead of ten. What it printed.

    For tests in which no process dies and nothing is imported from a study's own folder.
    """
    with redirect_stdout(io.StringIO()) as shown, redirect_stderr(shown), pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    assert ended.value.code == check, shown.getvalue()
    return shown.getvalue()


def here_json(*words: object) -> Any:
    return json.loads(here(*words, "--json"))


def start(*words: object) -> subprocess.Popen[str]:
    """Start a command and leave it running."""
    command = [sys.executable, "-m", "study.cli", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)


def wait_until(true: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


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
