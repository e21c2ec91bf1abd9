"""A Python that we start imports our packages, and nothing from the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIND = "import importlib.util as of; found = of.find_spec('study'); print(found and found.origin)"
# A file there would come before a library of its name: a `torch.py` beside the spec.
SAFE = {"PYTHONSAFEPATH": "1"}


@cache
def folders_to_add() -> list[str]:
    """The folder of our packages, if a new Python finds others or none; else nothing.

    It finds them once they are installed, or named by PYTHONPATH. It does not in a checkout in
    which `python -m study.cli` is run.
    """
    command = [sys.executable, "-P", "-c", FIND]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = Path(done.stdout.strip()).resolve()
    return [] if found.parent == ROOT / "study" else [str(ROOT)]


@contextmanager
def variables(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables meanwhile, also for the processes that are started. None: unset."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def environment() -> dict[str, str]:
    """This process's environment, for a new Python that imports what we do."""
    paths = [*folders_to_add(), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **SAFE, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
