"""A Python that we start imports our packages, and nothing from the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
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


def environment() -> dict[str, str]:
    """This process's environment, for a new Python that imports what we do."""
    paths = [*folders_to_add(), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **SAFE, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
