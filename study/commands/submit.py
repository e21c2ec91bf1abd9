"""Run a study on a cluster as a Ray job."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from study.schema.wait import Wait
from study.terminal.console import FAILED, console, errors, storage_option, tracking_option
from study.terminal.waiting import wait_options


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--address",
    metavar="A",
    required=True,
    help="Job server of a Ray cluster: http://127.0.0.1:8265.",
)
@click.option(
    "--trials",
    type=int,
    metavar="N",
    help="Trials per method, overriding the spec; raise it to add trials.",
)
@wait_options
@storage_option
@tracking_option
def submit(
    spec: Path,
    address: str,
    trials: int | None,
    wait: Wait,
    storage: str | None,
    tracking: str | None,
) -> None:
    """Run a study on a cluster as a Ray job.

    You can disconnect once the job ID is printed. Code, spec and extensions are uploaded; data and
    storage must be on the cluster under absolute paths. `doctor` runs first, and the job starts
    only if it finds no failure. To resume after an interruption, submit again.
    """
    from study.machines.submit import job_request
    from study.machines.submit import submit as submit_study
    from study.terminal.doctor import show

    asked = job_request(spec, storage, tracking, trials, wait)
    host = urlsplit(address).hostname or ""
    beyond = address.startswith("http://") and host != "localhost" and not host.startswith("127.")
    if beyond and os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        errors.print(
            f"warning: the token is sent to {host} unencrypted. Tunnel: ssh -L 8265:127.0.0.1:8265"
            f" {host}"
        )
    with errors.status("checking every node"):
        submitted = submit_study(asked, address)
    show(submitted.report, console)
    if submitted.job is None or asked.spec is None:
        raise SystemExit(FAILED)
    for word, command in (
        ("submitted", submitted.job),
        ("follow", f"ray job logs -f {submitted.job} --address {address}"),
        ("stop", f"ray job stop {submitted.job} --address {address}      submit again to resume"),
        (
            "read",
            (
                f"calstudy status {asked.spec.name} --storage {asked.root}      on a machine that"
                " sees the storage"
            ),
        ),
    ):
        console.say(f"{word + ':':10} {command}")
