"""Joining Ray: this machine unless told otherwise, or the cluster at an address."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from study.spec import Resources
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


class ClusterError(UserError):
    """There is no cluster to run on; the message says why and the mend."""


def set_environment() -> None:
    """Ray as a quiet executor; a variable the user has set stays."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@contextmanager
def joined(address: str | None, resources: Resources) -> Iterator[int]:
    """Ray, joined; gives how many trials run at once. Leaves (and, if it is ours, ends) Ray at the end."""
    if address is not None:
        _check_reachable(address)
    set_environment()
    import ray

    warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
    try:
        ray.init(
            address=address or "local",
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(f"no Ray cluster at '{address or 'local'}': {_first_line(error)}") from None
    try:
        yield slots(ray.cluster_resources(), resources)  # type: ignore[no-untyped-call]
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise ClusterError where nothing listens at HOST:PORT: Ray itself would wait for minutes."""
    host, separator, port = address.rpartition(":")
    if address == "auto" or "://" in address or address == "local":
        return
    if not separator or not port.isdigit():
        raise ClusterError(f"--address: '{address}' is no HOST:PORT of a Ray head, nor auto.")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"--address: no Ray head at {address} ({error}). Start one, or mend the address.") from None


def slots(cluster: dict[str, float], resources: Resources) -> int:
    """How many trials the cluster runs at once. Raises ClusterError where it is none."""
    needs = {"CPU": resources.cpu, "GPU": resources.gpu}
    fits = {kind: int(cluster.get(kind, 0.0) / need) for kind, need in needs.items() if need > 0}
    for kind, count in fits.items():
        if count < 1:
            have = cluster.get(kind, 0.0)
            raise ClusterError(
                f"resources.{kind.lower()}: a trial needs {needs[kind]:g}, the cluster has {have:g}. Ask for less."
            )
    return min(fits.values(), default=1)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Where Tune keeps what it thinks is its experiment; gone with the run."""
    return tempfile.TemporaryDirectory(prefix="calstudy-tune-", ignore_cleanup_errors=True)
