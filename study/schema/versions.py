"""Versions of what trains. Sent to nodes as is, so it imports only the standard library."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from trainables.machine import versions

# Nodes with different versions of these would train different trials under one name.
LIBRARIES = ("torch", "torchvision", "ray", "optuna", "mlflow", "numpy", "scikit-learn")


def recorded_versions() -> dict[str, str]:
    """The versions recorded with each trial: calstudy's, the libraries' and the git commit."""
    found = versions(("calstudy", *LIBRARIES))
    if commit := git_commit():
        found["git_commit"] = commit
    return found


def git_commit() -> str | None:
    """The commit of the working directory, with `+` if files were changed; None outside git."""
    try:
        named = _git({}, "config", "--list", "--show-scope", "--name-only", "--null").split("\0")
        quiet = dict(RUNS_NOTHING)
        for scope, name in zip(named[::2], named[1::2], strict=False):
            if scope in ("local", "worktree") and name.startswith("filter."):
                quiet[name] = "false" if name.endswith(".required") else ""
        commit = _git(quiet, "rev-parse", "--verify", "HEAD").strip()
        return f"{commit}+" if _git(quiet, *CHANGED) else commit
    except (OSError, subprocess.SubprocessError):
        return None


# A repository that someone else made may name programs in its own configuration: none is run.
RUNS_NOTHING = {"core.fsmonitor": "false", "core.hooksPath": os.devnull}
CHANGED = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")


def _git(settings: Mapping[str, str], *words: str) -> str:
    """Git's output, with these settings over its own. Raises OSError, SubprocessError."""
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}
    for number, (name, value) in enumerate(settings.items(), start=first):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    environment["GIT_CONFIG_COUNT"] = str(first + len(settings))
    command = ["git", "--no-pager", *words]
    return subprocess.run(
        command,
        env=environment,
        timeout=10,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ).stdout
