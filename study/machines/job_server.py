"""Ray's job server: reached, and asked for our jobs, their logs and their end.

Only the server must be reachable, for example through `ssh -L 8265:127.0.0.1:8265 HEAD`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from study.machines.heeding import INTERRUPTED
from study.machines.ray_compat import job_client
from study.machines.ray_session import ClusterError, ClusterUnready, set_environment, use_token
from study.schema.own_code import variables
from trainables.problems import nearest

REQUEST_SECONDS = 30  # timeout of a request to the job server
POLL_SECONDS = 0.5
# A stopped driver first finishes writing ledger and tracking; Ray's default is SIGKILL after 3
# seconds.
STOP_SECONDS = 60
STOP_PATIENCE = STOP_SECONDS + 60.0  # seconds until a stop that shows no effect is given up
LATEST = datetime.max.replace(tzinfo=UTC)
RUN, DOCTOR = "run", "doctor"  # kinds of our jobs
STATES = {
    "PENDING": "waiting",
    "RUNNING": "running",
    "STOPPED": "stopped",
    "SUCCEEDED": "finished",
    "FAILED": "failed",
}


@dataclass(frozen=True)
class Job:
    """A job of ours, as the job server has it."""

    name: str
    kind: str
    study: str
    storage: str
    state: str  # waiting, running, stopped, finished, interrupted (exit code 75), failed
    exit_code: int | None  # of its driver, where that ended by itself
    begun: datetime | None
    ended: datetime | None
    again: str | None  # the words after `calstudy submit` that go on with it

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")

    def is_this_study(self, name: str, storage: str) -> bool:
        """Whether it runs the study of this name in this storage."""
        return self.kind == RUN and (self.study, self.storage) == (name, storage)

    @property
    def code(self) -> int:
        """The exit code that says how it ended."""
        if self.state in ("stopped", "interrupted"):
            return INTERRUPTED
        if self.state == "finished":
            return 0
        return max(1, self.exit_code or 1)  # negative: by a signal

    @property
    def shown_state(self) -> str:
        """`running`, `failed (exit code 2)`, `failed (ended by SIGKILL)`."""
        if self.state != "failed" or self.exit_code is None:
            return self.state
        if self.exit_code < 0:
            return f"failed (ended by {signal.Signals(-self.exit_code).name})"
        return f"failed (exit code {self.exit_code})"

    def plain(self) -> dict[str, object]:
        """For JSON."""
        begun, ended = (when.isoformat() if when else None for when in (self.begun, self.ended))
        return {
            "job": self.name,
            "study": self.study,
            "storage": self.storage,
            "state": self.state,
            "exit_code": self.exit_code,
            "begun": begun,
            "ended": ended,
        }


def _job_of(details: Any) -> Job:
    known = details.metadata or {}
    code = details.driver_exit_code
    state = STATES[details.status.value]
    return Job(
        name=details.submission_id,
        kind=known["calstudy"],
        study=known.get("study", ""),
        storage=known.get("storage", ""),
        state="interrupted" if state == "failed" and code == INTERRUPTED else state,
        exit_code=code,
        begun=_moment(details.start_time),
        ended=_moment(details.end_time),
        again=known.get("again"),
    )


def _moment(milliseconds: int | None) -> datetime | None:
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds // 1000, UTC)


# ---- reaching it ---------------------------------------------------------------------------------


def connect(address: str) -> Any:
    """Ray's job client. Raises ClusterError: extra not installed, no job server, or token
    rejected."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClusterError(
            f"--address: '{address}' is not a job server",
            "Write http://HOST:8265; see `ray dashboard`.",
        )
    if importlib.util.find_spec("aiohttp") is None:
        raise ClusterError(
            "Ray's job client is not installed", "Run: pip install 'calstudy[cluster]'"
        )
    set_environment()
    use_token()
    # Ray prefers these to the address it is given.
    aside = dict.fromkeys(("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"))
    with variables(aside), errors_of(address):
        return job_client(address, REQUEST_SECONDS)


@contextmanager
def errors_of(address: str) -> Iterator[None]:
    """Turn errors of Ray's client into one line."""
    from ray.exceptions import AuthenticationError
    from requests.exceptions import ConnectionError as NoConnection
    from requests.exceptions import Timeout

    try:
        yield
    except AuthenticationError as error:
        missing = "no authentication token" in str(error)
        found = "requires a token" if missing else "rejects this token"
        fix = "Set RAY_AUTH_MODE=token, and copy the head's ~/.ray/auth_token here (chmod 600)."
        raise ClusterError(f"--address: the job server at {address} {found}", fix) from None
    except (ConnectionError, NoConnection, Timeout):
        fix = "Start the head with its dashboard, forward its port 8265, or fix the address."
        raise ClusterError(f"--address: nothing answers at {address}", fix) from None
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        detail = " ".join(str(error).split())[:300] or type(error).__name__
        raise ClusterError(f"--address: the job server at {address} failed: {detail}") from None


# ---- our jobs ------------------------------------------------------------------------------------


def our_jobs(client: Any, address: str) -> list[Job]:
    """The newest first. Jobs that others gave to this server are left out."""
    with errors_of(address):
        found = client.list_jobs()
    ours = [
        _job_of(details)
        for details in found
        if details.submission_id and (details.metadata or {}).get("calstudy") in (RUN, DOCTOR)
    ]
    return sorted(ours, key=lambda job: (job.begun or LATEST, job.name), reverse=True)


def find_job(jobs: Sequence[Job], named: str, address: str) -> Job:
    """The job of this name, or the newest of the study of this name. Raises ClusterError."""
    runs = [job for job in jobs if job.kind == RUN]
    matching = [job for job in jobs if job.name == named] or [
        job for job in runs if job.study == named
    ]
    if matching:
        return matching[0]
    known = dict.fromkeys([*(job.study for job in runs), *(job.name for job in jobs)])
    near = nearest(named, known)
    mend = near if near.startswith("Did") else f"List them: calstudy jobs --address {address}"
    if not known:
        mend = "No study was submitted there."
    raise ClusterError(f"'{named}': {address} has no such job and no job of such a study", mend)


# ---- logs ----------------------------------------------------------------------------------------


def log_lines(client: Any, job: Job, address: str) -> list[str]:
    """What its driver has said so far."""
    with errors_of(address):
        return str(client.get_job_logs(job.name)).splitlines()


def last_line(client: Any, job: Job, address: str) -> str:
    """The last that its driver said; empty if nothing."""
    said = [line for line in log_lines(client, job, address) if line.strip()]
    return said[-1] if said else ""


def follow(client: Any, job: Job, address: str, say: Callable[[str], object]) -> Job:
    """Say each line of the driver until it ends; the job as it is then. Raises ClusterUnready if
    the connection breaks."""
    from aiohttp import ClientError

    try:
        asyncio.run(_say_lines(client.tail_job_logs(job.name), say))
        return _again(client, job, address)
    except (ClusterError, ClientError, RuntimeError, OSError):
        found = f"--address: the connection to the job server at {address} broke"
        fix = f"The job does not notice. Run again: calstudy logs -f {job.name} --address {address}"
        raise ClusterUnready(found, fix) from None


async def _say_lines(chunks: AsyncIterator[str], say: Callable[[str], object]) -> None:
    rest = ""
    async for chunk in chunks:
        *lines, rest = f"{rest}{chunk}".split("\n")
        for line in lines:
            say(line)
    if rest:
        say(rest)


def _again(client: Any, job: Job, address: str) -> Job:
    """The job as it is now."""
    with errors_of(address):
        return _job_of(client.get_job_info(job.name))


# ---- the end -------------------------------------------------------------------------------------


def stop(client: Any, job: Job, address: str) -> Job:
    """Ask its driver to stop, and wait until it has ended; the job as it is then. Raises
    ClusterUnready if it does not end."""
    if not job.is_over:
        with errors_of(address):
            client.stop_job(job.name)
    until = time.monotonic() + STOP_PATIENCE
    while not (job := _again(client, job, address)).is_over:
        if time.monotonic() > until:
            raise ClusterUnready(
                f"{job.name}: its driver has not ended {STOP_PATIENCE:g} s after the request",
                f"See: calstudy logs {job.name} --address {address}",
            )
        time.sleep(POLL_SECONDS)
    return job
