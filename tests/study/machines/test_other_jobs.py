"""What is said of the jobs that run beside ours on a cluster: no word that may be a password."""

from types import SimpleNamespace
from typing import Any

import pytest

from study.machines import ray_compat


def told(monkeypatch: pytest.MonkeyPatch, *entrypoints: str, **config: str) -> list[str]:
    """Of jobs that were started so, by Ray's own messages."""
    from ray._private import state
    from ray.core.generated import gcs_pb2

    rows = []
    for number, entrypoint in enumerate(entrypoints, start=2):
        job: Any = gcs_pb2.JobTableData(
            job_id=number.to_bytes(4, "little"), entrypoint=entrypoint, driver_pid=8
        )
        job.driver_address.ip_address = "10.0.0.1"
        job.config.ray_namespace = config.get("namespace", "mine")
        rows.append(job.SerializeToString())
    accessor = SimpleNamespace(get_job_table=lambda **_: rows)
    monkeypatch.setattr(state.state, "_connect_and_get_accessor", lambda: accessor)
    monkeypatch.setattr(ray_compat, "own_job", lambda: "01000000")
    return list(ray_compat.other_jobs().values())


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python hog.py --password s3cret", "python hog.py, "),
        ("python hog.py s3cret", "python hog.py, "),
        ("python -m hog s3cret", "python -m hog, "),
        ("python --token=s3cret hog.py", "python, "),
        ("", ""),
    ],
)
def test_only_the_first_words_of_a_command_are_shown(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(monkeypatch, command) == [f"{shown}process 8 on 10.0.0.1"]


def test_jobs_of_ray_itself_are_no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, "python x.py", namespace="_ray_internal_dashboard") == []
