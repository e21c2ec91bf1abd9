"""Join Ray: a local one, or the cluster at an address."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import secrets
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TypedDict

from study.machines.cpus import Cpus, own_cpus
from study.machines.ray_compat import (
    head_question,
    leave_client_mode,
    leave_ray,
    without_its_sigterm,
    without_services,
    workers_import_from,
)
from study.machines.stopping import temporary_folder
from study.schema.errors import TryAgain
from study.schema.own_code import SAFE, folders_to_add, variables
from study.schema.resources import Resources, slots
from trainables.files.home import ensure_home, token_file
from trainables.problems import UserError

# Ray and Tune read these when they are imported.
_ENVIRONMENT = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths mean the same in a worker
    "RAY_AIR_NEW_OUTPUT": "0",  # our own live view
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # One process a CPU, which Tune's actors, with an environment, never take.
    "RAY_prestart_worker_first_driver": "0",
    # Then its C++ code ends the process; `watching` is sooner.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "150",
    # A Ray on this machine alone need not give up its only node.
    "RAY_health_check_failure_threshold": "20",
    # Else the titles of Ray's processes overwrite their environment, and with it our mark.
    "SPT_NOENV": "1",
    # No CSV, JSON and TensorBoard files: the ledger has everything.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # we handle SIGINT and SIGTERM
    # Tracebacks; what a trial raises is in its log, what it died of in the ledger.
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # no snapshots: a run resumes from the ledger
    "TUNE_WARN_THRESHOLD_S": "10",
}


# Of a cluster's drivers; a Ray on this machine alone ignores them.
HOOK = "RAY_RUNTIME_ENV_HOOK"
OF_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it for the driver of a job
CLIENT_MODE = "RAY_CLIENT_MODE"
_client_asked = False  # by that variable

START_TRIES = 6  # of 30 s each
# Characters of the folder for temporary files: a socket's path, 79 longer, has at most 107.
LONGEST_TEMP = 28


class Offer(TypedDict):
    """What a node offers to trials, in Ray's names."""

    Alive: bool
    Resources: Mapping[str, float]


class Node(Offer):
    """One of `ray.nodes()`."""

    NodeID: str
    NodeManagerAddress: str


class ClusterError(UserError):
    """No usable cluster; the message gives the reason and the fix."""


class ClusterUnready(ClusterError, TryAgain):
    """A cluster that another try may find: its head is away, or Ray did not start in time."""


def set_environment() -> None:
    """Set Ray's environment; variables the user has set are kept, but for the one that asks for Ray
    Client: what is asked of Ray before it is joined would start one."""
    global _client_asked
    ensure_home()
    _client_asked |= os.environ.get(CLIENT_MODE) == "1"
    os.environ[CLIENT_MODE] = "0"
    if "ray" in sys.modules:  # else it reads the variable later
        _client_asked |= leave_client_mode()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if os.path.exists(token := token_file()):
        _name_token(token)


def _name_token(token: Path) -> None:
    """Tell Ray where its token is, unless it looks there: in $HOME."""
    at_home = Path(os.environ.get("HOME", ""), ".ray", "auth_token")
    if token != at_home and not os.environ.get("RAY_AUTH_TOKEN"):
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)


@contextmanager
def joined(
    address: str | None,
    needs: Mapping[str, Resources],
    say: Callable[[str], None] = lambda step: None,
    asked_cpus: int | None = None,
) -> Iterator[None]:
    """Join Ray; on exit leave it, or stop a local one.

    needs: resources of a trial per method. say: is told what is being done. asked_cpus: of a local
    one; default: those that are ours. Raises ClusterError if a method's trials fit on no node.
    """
    cpus = own_cpus(asked_cpus) if address is None else None
    if cpus is None:
        say(f"joining Ray at {address}")
    else:
        say(f"starting Ray with {cpus}" if cpus.why else "starting Ray")
    set_environment()
    warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
    with nullcontext() if address is not None else _private_folder() as folder:
        # Warnings of Ray's processes are discarded; errors are raised.
        with _silence(), nullcontext() if address is not None else without_services():
            _join(address, cpus, folder, say)
        try:
            check_fits(ray_nodes(), needs, cpus)
            yield
        finally:
            leave_ray()


@contextmanager
def _private_folder() -> Iterator[str]:
    """Where a local Ray keeps its sockets, logs and files, closed to other users; its own choice is
    open to all.

    Its user's token is made too, if there is none: Ray's would be readable by all. What exists
    keeps its mode.
    """
    if os.environ.get("RAY_AUTH_MODE", "token").lower() == "token":
        with suppress(OSError):  # Ray says what is wrong, if it needs one
            _make_token()
    place = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    if len(place) > LONGEST_TEMP:
        if "RAY_TMPDIR" in os.environ:
            print(
                f"RAY_TMPDIR: longer than {LONGEST_TEMP} characters; Ray's files go to /tmp.",
                file=sys.stderr,
            )
        place = "/tmp"
    os.makedirs(place, exist_ok=True)
    with temporary_folder("ray-", place) as folder:
        yield f"{folder}/r"  # Ray opens the folder it is given to all; this one's parent is 0700


def _make_token() -> None:
    token = token_file()
    if os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} or os.path.exists(token):
        return
    _name_token(token)
    token.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Whole from the first moment on: another start may read it now, and a kill leave it as it is.
    # 0600.
    with tempfile.NamedTemporaryFile("w", dir=token.parent, prefix="auth_token.") as partial:
        partial.write(secrets.token_hex(32))
        partial.flush()
        with suppress(FileExistsError):  # another start's
            os.link(partial.name, token)


def _join(
    address: str | None, cpus: Cpus | None, folder: str | None, say: Callable[[str], None]
) -> None:
    import ray

    ignored: dict[str, str | None] = {}
    if address is None:
        ignored = dict.fromkeys((HOOK, OF_A_JOB))
    for tried in range(1, START_TRIES + 1):
        try:
            with (
                variables({**SAFE, **ignored}),
                workers_import_from(folders_to_add()),
                without_its_sigterm(),
            ):
                ray.init(
                    address=address or "local",
                    num_cpus=cpus.count if cpus is not None else None,
                    include_dashboard=None if address else False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    configure_logging=True,
                    _temp_dir=folder,
                )
            return
        except Exception as error:
            # Ray allows its processes a fixed 30 s to start (ray/_private/node.py:428). Those it
            # did start end with this process.
            if "timed out during startup" in str(error):
                if tried < START_TRIES:
                    say(
                        f"starting Ray again: it took longer than 30 s ({tried} of {START_TRIES}"
                        " tries)"
                    )
                    continue
                problem = f"Ray's processes did not start within 30 seconds, {START_TRIES} times"
                fix = "This machine is too busy or short of memory or disk; run again later."
                raise ClusterUnready(problem, fix) from None
            if not isinstance(
                error, ConnectionError | RuntimeError | ValueError | ray.exceptions.RayError
            ):
                raise
            kind = ClusterError if isinstance(error, ValueError) else ClusterUnready
            where = f"no Ray cluster at '{address}'" if address else "Ray did not start here"
            raise kind(f"{where}: {_first_line(error)}") from None


@contextmanager
def _silence() -> Iterator[None]:
    """Discard standard error, also of C++ code."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def ray_nodes() -> list[Node]:
    """Ray's nodes, dead ones included."""
    import ray

    return list(ray.nodes())  # type: ignore[no-untyped-call]


def control_store() -> str:
    """HOST:PORT of the control store of the joined Ray."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def check_address(address: str) -> None:
    """Raise ClusterError if no Ray head answers at HOST:PORT or it rejects our token, where Ray
    would wait for minutes.

    ClusterUnready if nothing answers there, which may be starting. `auto` and `local` are not
    checked.
    """
    set_environment()
    _check_variables()
    host, separator, port = address.rpartition(":")
    if address in ("auto", "local"):
        return
    if address.startswith(("http://", "https://")):
        raise ClusterError(
            f"--address: '{address}' is a job server, which runs commands on its head",
            f"Run: ray job submit --address {address} --working-dir . -- exec calstudy ..., there"
            " with --address auto.",
        )
    if "://" in address or not separator or not port.isdigit():
        raise ClusterError(
            f"--address: '{address}' is not a Ray address", "Write HOST:PORT or auto."
        )
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        is_wrong = isinstance(error, OverflowError | socket.gaierror)
        kind = ClusterError if is_wrong else ClusterUnready
        raise kind(
            f"--address: no Ray head at {address} ({error})", "Start one, or fix the address."
        ) from None
    import ray

    try:
        with _silence():
            head_question(address)(5)
    except ray.exceptions.AuthenticationError:
        if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
            found = f"--address: the cluster at {address} wants a token, and none was sent"
            mend = "Set RAY_AUTH_MODE=token, and have its ~/.ray/auth_token here."
            raise ClusterError(found, mend) from None
        raise ClusterError(
            f"--address: the cluster at {address} rejects this token",
            "Copy its ~/.ray/auth_token here.",
        ) from None
    except Exception as error:  # anything may listen there
        is_slow = re.search("timed? ?out|deadline", str(error), re.IGNORECASE)
        kind = ClusterUnready if is_slow else ClusterError
        found = f"{address} does not answer like a Ray head ({_first_line(error)[:200]})"
        raise kind(f"--address: {found}", "Fix the address.") from None


def _check_variables() -> None:
    """Raise ClusterError for a variable with which Ray would not join a cluster as we do."""
    if _client_asked:
        found = "asks for Ray Client, which calstudy does not use"
        raise ClusterError(f"{CLIENT_MODE}: {found}", "Unset it.")
    hook = os.environ.get(HOOK)
    if hook is not None:
        module, _, name = hook.rpartition(".")
        try:
            getattr(importlib.import_module(module), name)
        except Exception as error:  # of anybody's code
            found = f"'{hook}' cannot be imported ({_first_line(error)})"
            raise ClusterError(f"{HOOK}: {found}", "Install its package, or unset it.") from None
    of_a_job = os.environ.get(OF_A_JOB, "{}")
    try:
        is_mapping = isinstance(json.loads(of_a_job), dict)
    except ValueError:
        is_mapping = False
    if not is_mapping:
        raise ClusterError(f"{OF_A_JOB}: is no JSON of a job", "Unset it: Ray sets it for a job.")


def check_fits(
    nodes: Sequence[Offer], needs: Mapping[str, Resources], cpus: Cpus | None = None
) -> None:
    """Raise ClusterError if a method's trials fit on no node: they would wait forever.

    cpus: those of this machine, if it is the only node.
    """
    for label, resources in needs.items():
        if slots(nodes, resources) == 0:
            wanted = in_words(resources)
            if cpus is not None:
                gpus = nodes[0]["Resources"].get("GPU", 0.0)
                if resources.gpu and not gpus:
                    raise ClusterError(
                        f"resources: no GPU here; a trial of {label} needs {wanted}",
                        "Run with --address, or on a node with 1 GPU.",
                    )
                why = f" ({cpus.why})" if cpus.why else ""
                given = f"{cpus.count} CPU{why} and {gpus:g} GPU"
                more = (
                    ""
                    if cpus.why in (None, "--cpus")
                    else ", or say with --cpus that you may use more"
                )
                raise ClusterError(
                    f"resources: a trial of {label} needs {wanted}; this machine gives {given}",
                    f"Request less, or run it on a larger machine{more}.",
                )
            raise ClusterError(
                f"resources: a trial of {label} needs {wanted} on one node; nodes have"
                f" {offers(nodes)}",
                "Request less, or start a larger node.",
            )


def in_words(resources: Resources) -> str:
    """`8 CPU and 1 GPU`."""
    return " and ".join(f"{need:g} {kind}" for kind, need in resources.to_ray().items())


def offers(nodes: Sequence[Offer]) -> str:
    """What nodes offer, each kind of node once: `4 CPU/0 GPU, 8 CPU/1 GPU`."""
    have = [
        "/".join(f"{node['Resources'].get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
        for node in nodes
        if node["Alive"]
    ]
    return ", ".join(sorted(set(have)))


def _first_line(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line.partition("  Last ")[0]  # lines of Ray's logs, which follow
