"""What trials are trained with. Sent to the nodes of a cluster as it stands here: it imports the standard library."""

from __future__ import annotations

import importlib.metadata
import subprocess
from collections.abc import Sequence

# Nodes that differ in one of these train different trials under one name.
LIBRARIES = ("torch", "torchvision", "ray", "optuna", "mlflow", "numpy", "scikit-learn")


def versions(names: Sequence[str]) -> dict[str, str]:
    """Of distributions, as installed or lying beside the code; "missing" where there is none."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def recorded_versions() -> dict[str, str]:
    """What is recorded with each trial: ours, the libraries', and the commit."""
    commit = git_commit()
    return {**versions(("calstudy", *LIBRARIES)), **({"git_commit": commit} if commit else {})}


def git_commit() -> str | None:
    """The commit of the folder the study is run from, with `+` where files differ from it; None outside git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
