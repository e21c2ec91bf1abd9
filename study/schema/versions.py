"""Versions that trials are trained with. Sent to cluster nodes as is, so it imports only the standard library."""

from __future__ import annotations

import importlib.metadata
import subprocess
from collections.abc import Sequence

# Nodes with different versions of these would train different trials under one name.
LIBRARIES = ("torch", "torchvision", "ray", "optuna", "mlflow", "numpy", "scikit-learn")


def versions(names: Sequence[str]) -> dict[str, str]:
    """Installed versions of distributions; "missing" if not installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def recorded_versions() -> dict[str, str]:
    """The versions recorded with each trial: calstudy's, the libraries' and the git commit."""
    commit = git_commit()
    return {**versions(("calstudy", *LIBRARIES)), **({"git_commit": commit} if commit else {})}


def git_commit() -> str | None:
    """The commit of the working directory, with `+` if files were changed; None outside git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
