"""Values of environment variables, handed from here to the driver of a job and to nobody else.

Ray's own way, `env_vars` of a job's runtime environment, shows them in the list of jobs and gives
them to every worker. So they lie in the head's control store until the driver takes them away, or
until Ray drops them: ten minutes after they came.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from study.machines.ray_compat import leave_package, take_package
from trainables.problems import UserError

# Of the driver's own process: where its values lie. Its workers do not get it.
PLACE = "CALSTUDY_HANDED"
OK = 200
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Ray's errors show the first 15 bytes of a package.
HEADER = b"calstudy's environment\n"


def values_here(names: Sequence[str]) -> dict[str, str]:
    """The values of these variables here. Raises UserError."""
    found = {}
    for given in names:
        name, separator, _ = given.partition("=")
        if separator:  # the value is not repeated
            raise UserError(
                f"--env: {name}=... gives a value, and a command line is public",
                f"Set {name or 'the variable'} in the environment, and give its name alone.",
            )
        if not NAME.fullmatch(name):
            raise UserError(
                f"--env: '{name}' is not the name of an environment variable",
                "Write letters, digits and _, as in PGPASSWORD.",
            )
        if not os.environ.get(name):
            state = "is empty" if name in os.environ else "is not set"
            raise UserError(f"--env: {name} {state} here", "Set and export it first.")
        found[name] = os.environ[name]
    return found


def hand_over(client: Any, values: Mapping[str, str]) -> str:
    """Leave the values for the driver of the next job; where they lie."""
    name = f"_ray_pkg_{secrets.token_hex(20)}.zip"
    status = leave_package(client, name, HEADER + json.dumps(dict(values)).encode())
    if status != OK:
        raise RuntimeError(f"it took no values for the driver (HTTP status {status})")
    return f"gcs://{name}"


def take_handed() -> None:
    """In a driver: put the values that were handed over into its environment, and remove them from
    the cluster. Raises ClusterUnready if they are not there."""
    place = os.environ.pop(PLACE, None)
    if place is None:
        return
    from study.machines.ray_session import ClusterUnready, set_environment

    set_environment()
    address = os.environ.get("RAY_ADDRESS")  # of a job: HOST:PORT of its control store
    found = take_package(address, place) if address else None
    if found is None or not found.startswith(HEADER):
        raise ClusterUnready(
            "--env: the values for the driver are gone: it began too late or a second time",
            "Submit the study again.",
        )
    os.environ.update(json.loads(found.removeprefix(HEADER)))
