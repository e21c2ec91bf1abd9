"""Run a study on a cluster, as a job of its own."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from study.terminal.console import FAILED, console, errors, storage_option, tracking_option


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--address", metavar="A", required=True, help="Job server of a Ray cluster: http://127.0.0.1:8265.")
@click.option("--trials", type=int, metavar="N", help="Trials for each method, instead of the spec's; more go on.")
@storage_option
@tracking_option
def submit(spec: Path, address: str, trials: int | None, storage: str | None, tracking: str | None) -> None:
    """Run a study on a cluster as a job; this machine may go once the job is named.

    Code, spec and extensions travel; the data and the storage are on the cluster, under absolute paths. `doctor` is
    asked first, and nothing starts where it finds a failure. Submit again after any interruption: it goes on.
    """
    from study.engine.doctor import show
    from study.engine.submit import job_request
    from study.engine.submit import submit as submit_study

    asked = job_request(spec, storage, tracking, trials)
    host = urlsplit(address).hostname or ""
    beyond = address.startswith("http://") and host != "localhost" and not host.startswith("127.")
    if beyond and os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        errors.print(f"warning: the token travels to {host} in the clear. ssh -L 8265:127.0.0.1:8265 {host} hides it.")
    with errors.status("asking every node"):
        submitted = submit_study(asked, address)
    show(submitted.report, console)
    if submitted.job is None or asked.spec is None:
        raise SystemExit(FAILED)
    for word, command in (
        ("submitted", submitted.job),
        ("follow", f"ray job logs -f {submitted.job} --address {address}"),
        ("stop", f"ray job stop {submitted.job} --address {address}      submit it again and it goes on"),
        ("read", f"calstudy status {asked.spec.name} --storage {asked.root}      where the storage is seen"),
    ):
        console.print(f"{word + ':':10} {command}", soft_wrap=True)
