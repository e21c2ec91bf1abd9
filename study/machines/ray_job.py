"""A driver that runs as a Ray job: what would not outlive it, and how long its end may take."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from study.machines.ray_session import OF_A_JOB, ClusterError
from study.schema.compatibility import leaves
from study.schema.errors import SpecError
from study.schema.spec import StudySpec

STOP_SECONDS = "RAY_JOB_STOP_WAIT_TIME_S"  # read by Ray, 3 where it is not set
MEND = "Give an absolute path that every node sees."


def check_job(spec: StudySpec, file_name: str, root: Path, say: Callable[[str], object]) -> None:
    """In a Ray job, raise ClusterError for a storage in one of Ray's folders, SpecError for data, a
    network's file or a ledger there: Ray removes them. Say so where the end is short."""
    if OF_A_JOB not in os.environ:
        return
    if _is_rays(root):
        found = f"{root} lies in a folder of Ray's, and the study would be lost with it"
        raise ClusterError(f"--storage: {found}", MEND)
    plain = spec.to_mapping()
    named = {key: plain[key] for key in ("data", "shift", "model", "ledger")}
    for path, value in leaves(named):
        if isinstance(value, str) and os.path.isabs(value) and _is_rays(Path(value)):
            found = f"'{value}' lies in a folder of Ray's, as a relative path does in a job"
            raise SpecError(file_name, path, found, MEND)
    if STOP_SECONDS not in os.environ:
        given = json.dumps({"env_vars": {STOP_SECONDS: "60"}})
        say(
            "warning: Ray kills this driver 3 s after `ray job stop`, often before it has ended."
            f" Submit it with --runtime-env-json '{given}'."
        )


def _is_rays(path: Path) -> bool:
    return any(path.resolve().is_relative_to(folder) for folder in _rays_folders())


def _rays_folders() -> Iterator[Path]:
    """Its temporary folder where nobody chose another (ray/_common/utils.py), and the session that
    holds the copy of the job's working directory."""
    temporary = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    yield Path(temporary, "ray").resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if folder.name == "working_dir_files":
            yield folder.parents[1]  # SESSION/runtime_resources/working_dir_files/PACKAGE
