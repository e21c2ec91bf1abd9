"""Run a study on a cluster as a Ray job."""

from __future__ import annotations

from pathlib import Path

import click

from study.schema.wait import Wait
from study.terminal.console import (
    FAILED,
    console,
    env_option,
    errors,
    job_server_option,
    storage_option,
    tracking_option,
)
from study.terminal.waiting import wait_options


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@job_server_option
@click.option(
    "--trials",
    type=int,
    metavar="N",
    help="Trials per method, overriding the spec; raise it to add trials.",
)
@wait_options
@env_option
@storage_option
@tracking_option
def submit(
    spec: Path,
    address: str,
    trials: int | None,
    wait: Wait,
    env: tuple[str, ...],
    storage: str | None,
    tracking: str | None,
) -> None:
    """Run a study on a cluster as a Ray job.

    You can disconnect once the job ID is printed. Code, spec and extensions are uploaded; data and
    storage must be on the cluster under absolute paths. `doctor` runs first, and the job starts
    only if it finds no failure. To resume after an interruption, submit again. A password goes with
    --env, by the name of its variable: no list of jobs and no worker shows it.
    """
    from study.machines.handing import values_here
    from study.machines.submit import job_request
    from study.machines.submit import submit as submit_study
    from study.terminal.doctor import show
    from study.terminal.jobs import warn_of_plain_http

    values = values_here(env)
    asked = job_request(spec, storage, tracking, trials, wait)
    warn_of_plain_http(address, values)
    with errors.status("checking every node"):
        submitted = submit_study(asked, address, values)
    show(submitted.report, console)
    if submitted.job is None or asked.spec is None:
        raise SystemExit(FAILED)
    for word, command in (
        ("submitted", submitted.job),
        ("follow", f"calstudy logs -f {submitted.job} --address {address}"),
        ("stop", f"calstudy stop {submitted.job} --address {address}      submit again to resume"),
        (
            "read",
            (
                f"calstudy status {asked.spec.name} --storage {asked.root}      on a machine that"
                " sees the storage"
            ),
        ),
    ):
        console.say(f"{word + ':':10} {command}")
