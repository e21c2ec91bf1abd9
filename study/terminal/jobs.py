"""Jobs on a cluster, and what is said before they are reached."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from study.machines.job_server import Job
from study.machines.ray_session import set_environment, use_token
from study.terminal.console import errors
from study.terminal.layout import Table


def jobs_table(jobs: Sequence[Job]) -> Table:
    """One row a job, the newest first."""
    made = Table("job", "study", "state", "begun")
    for job in jobs:
        begun = f"{job.begun:%Y-%m-%d %H:%M} UTC" if job.begun else ""
        made.add_row(job.name, job.study, job.shown_state, begun)
    return made


def warn_of_plain_http(address: str, values: Collection[str] = ()) -> None:
    """Say what others on the way can read. values: names of what is sent to the driver."""
    host = urlsplit(address).hostname or ""
    if not address.startswith("http://") or host == "localhost" or host.startswith("127."):
        return
    set_environment()
    use_token()
    token = ["the token"] if os.environ.get("RAY_AUTH_MODE", "").lower() == "token" else []
    if sent := [*token, *values]:
        verb = "are" if len(sent) > 1 else "is"
        errors.print(
            f"warning: {' and '.join(sent)} {verb} sent to {host} unencrypted. Tunnel:"
            f" ssh -L 8265:127.0.0.1:8265 {host}"
        )
