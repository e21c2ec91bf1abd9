"""Joining Ray: this machine unless told otherwise, or the cluster at an address."""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from study.engine.ray_compat import ask_head
from study.schema.resources import Resources, slots
from trainables.fields import UserError

# Ray and Tune read these when they are imported.
_ENVIRONMENT = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths mean the same in a worker
    "RAY_AIR_NEW_OUTPUT": "0",  # our own live view
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON and TensorBoard files: the ledger has it all
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # SIGINT and SIGTERM are ours
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # no snapshots: the ledger is what a run goes on from
    "TUNE_WARN_THRESHOLD_S": "10",
}


LOOK_SECONDS = 5.0


class ClusterError(UserError):
    """There is no cluster to run on; the message says why and the mend."""


def set_environment() -> None:
    """Ray as a quiet executor; a variable the user has set stays."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@contextmanager
def joined(address: str | None, needs: Mapping[str, Resources]) -> Iterator[Callable[[], int]]:
    """Ray, joined; gives how many trials run at once, whenever it is asked. Leaves (and, if it is ours, ends) Ray.

    needs: what a trial of each method takes. Raises ClusterError where no node has it.
    """
    set_environment()
    import ray

    warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
    with _silence():  # Ray's own processes' warnings; what matters comes as an exception
        _join(address)
    try:
        check_fits(ray_nodes(), needs)
        yield _Slots(list(needs.values()))
    finally:
        ray.shutdown()


def _join(address: str | None) -> None:
    import ray

    for tries_left in (1, 0):
        try:
            ray.init(
                address=address or "local",
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=True,
            )
            return
        except Exception as error:
            # Ray gives its own processes 30 s and no way to say more (ray/_private/node.py:428). What it started then
            # ends with this process.
            if "timed out during startup" in str(error):
                if tries_left:
                    continue
                mend = "This machine is too busy, or has too little memory; run again later."
                raise ClusterError(f"Ray's own processes did not start within its 30 seconds, twice. {mend}") from None
            if not isinstance(error, ConnectionError | RuntimeError | ValueError | ray.exceptions.RayError):
                raise
            raise ClusterError(f"no Ray cluster at '{address or 'local'}': {_first_line(error)}") from None


@contextmanager
def _silence() -> Iterator[None]:
    """What C++ writes to standard error goes nowhere."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def ray_nodes() -> list[dict[str, Any]]:
    """What Ray says of its nodes, the dead ones too."""
    import ray

    return list(ray.nodes())  # type: ignore[no-untyped-call]


class _Slots:
    """How many trials run at once, looked up anew when the last look is some seconds old."""

    def __init__(self, needs: list[Resources]) -> None:
        self._needs, self._found, self._looked = needs, 0, -math.inf

    def __call__(self) -> int:
        if time.monotonic() - self._looked > LOOK_SECONDS:
            nodes = ray_nodes()
            self._found, self._looked = max(slots(nodes, resources) for resources in self._needs), time.monotonic()
        return self._found


def check_address(address: str) -> None:
    """Raise ClusterError where nothing listens at HOST:PORT, or our token is not the cluster's: Ray waits for minutes.

    `auto` and `local` are Ray's to find.
    """
    host, separator, port = address.rpartition(":")
    if address in ("auto", "local"):
        return
    if "://" in address or not separator or not port.isdigit():
        raise ClusterError(f"--address: '{address}' is no HOST:PORT of a Ray head, nor auto.")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"--address: no Ray head at {address} ({error}). Start one, or mend the address.") from None
    set_environment()
    import ray

    try:
        with _silence():
            ask_head(address, 5)
    except ray.exceptions.AuthenticationError:
        raise ClusterError(
            f"--address: the cluster at {address} does not take our token. Copy its ~/.ray/auth_token here"
            " and set RAY_AUTH_MODE=token."
        ) from None
    except Exception as error:  # whatever listens there
        problem = f"what listens at {address} does not answer as a Ray head ({_first_line(error)[:200]})."
        raise ClusterError(f"--address: {problem} Mend the address.") from None


def check_fits(nodes: Sequence[Mapping[str, Any]], needs: Mapping[str, Resources]) -> None:
    """Raise ClusterError where a method's trials fit on no node: they would wait for ever."""
    for label, resources in needs.items():
        if slots(nodes, resources) == 0:
            wanted = " and ".join(f"{need:g} {kind}" for kind, need in resources.to_ray().items())
            have = [
                "/".join(f"{node['Resources'].get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
                for node in nodes
                if node["Alive"]
            ]
            raise ClusterError(
                f"resources: a trial of {label} needs {wanted} on one node; there is {', '.join(sorted(set(have)))}."
                " Ask for less, or start such a node first."
            )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Where Tune keeps what it thinks is its experiment; gone with the run."""
    return tempfile.TemporaryDirectory(prefix="calstudy-tune-", ignore_cleanup_errors=True)
